# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/action/purge/compaction"

class CompactionTest < MemscopeTest
  Compaction = Memscope::Purge::Compaction

  def test_the_passes
    skip_without_compaction

    assert_includes [%w[compact gc], %w[warmup]], Compaction.run.uniq
    assert_nil Compaction.missing
  end

  # Overwrites the words above the top of a thread's stack with an invalid address: the Rubies on which compaction is
  # refused take these words for objects in GC.compact. Follows struct rb_thread_struct to its execution context, to the
  # top frame, and to that frame's first free word.
  SPOIL = <<~RUBY
    word = ->(address) { Fiddle::Pointer.new(address)[0, 8].unpack1("Q") }
    spoil = lambda do |thread, words|
      context = word.(word.(Fiddle.dlwrap(thread) + 32) + (RUBY_VERSION < "3.2" ? 40 : 48))
      Fiddle::Pointer.new(word.(word.(context + 16) + 8))[0, 8 * words] = [0x1000].pack("Q") * words
    end
  RUBY

  # Whose stack is spoilt, and when.
  SPOILT = {
    others: <<~RUBY,
      queue = Queue.new
      busy = Thread.new { queue << 1 && loop { nil } }
      queue.pop
      others = [busy, Thread.new { queue.pop }, Thread.new { sleep }]
      Thread.pass until others.last(2).all?(&:stop?)
      others.each { |thread| spoil.(thread, 1) }
      GC.compact
    RUBY
    its_own: <<~RUBY,
      deeper = ->(calls, &block) { calls.zero? ? block.() : deeper.(calls - 1, &block) }
      spoil.(Thread.current, 200)
      deeper.(5) { GC.compact }
    RUBY
    at_exit_of_the_main_thread: <<~RUBY
      main = Thread.current
      begun = Queue.new
      Thread.new do
        begun << true
        sleep
      ensure
        sleep(0.01) while main.alive?
        sleep 0.05
        spoil.(main, 1)
        GC.compact
        puts "done"
      end
      begun.pop
      exit
    RUBY
  }.freeze

  # Compaction is refused on the Rubies that this crashes, and on no others.
  SPOILT.each do |whose, spoilt|
    define_method("test_what_lies_above_stacks_#{whose}") do
      skip "Ruby 3.3 does not look there" if RUBY_VERSION >= "3.3"
      skip_under_sanitizer
      skip_without "fiddle"
      compacted = ChildProcess.run("#{SPOIL}#{spoilt}puts 'done'\n", requires: ["fiddle"])

      if Compaction.missing
        assert_match(/\[BUG\] Segmentation fault at 0x0+1000$/, compacted.err)
      else
        assert_equal "done\n", compacted.out
      end
    end
  end

  def test_it_is_refused_beside_other_ractors
    skip "Ruby 3.3 has another way" if RUBY_VERSION >= "3.3"
    skip_without_compaction

    requires = %w[json memscope/action/purge/compaction]
    missing, message, reason = child_json(<<~RUBY, requires: requires, ruby_args: ["-W:no-experimental"])
      ractor = Ractor.new { Ractor.receive }
      refused = begin
        Memscope.purge(:compact)
      rescue ArgumentError => e
        e.message
      end
      later = begin
        Memscope::Purge::Compaction.run
      rescue NotImplementedError => e
        e.message
      end
      puts JSON.generate([Memscope::Purge::Compaction.missing, refused, later])
      $stdout.flush
      exit!(ractor ? 0 : 1)
    RUBY

    assert_match(/other Ractors are alive/, missing)
    assert_match(/:compact is not available: other Ractors/, message)
    assert_equal missing, reason
  end
end
