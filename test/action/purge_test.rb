# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/notified"

class PurgeTest < MemscopeTest
  include Notified

  JEMALLOC = ChildProcess::ALLOCATORS[:jemalloc]
  # Ruby's own levers, which depend on its version.
  OWN = Memscope::Purge.missing.slice(:gc, :compact).select { |_lever, missing| missing.nil? }.keys.freeze
  LEVERS = { glibc: [*OWN, :trim], jemalloc: [*OWN, :tcache, :decay, :purge] }.freeze
  MESSAGE = /\AMemscope\.purge: (lever|dry_run): given .+, allowed: ./

  # Arguments that are refused, whatever serves malloc.
  REFUSED = [
    [[:vacuum], {}], [["gc"], {}], [[nil], {}], [%i[gc vacuum], {}], [[:collect], {}],
    [[], { dry_run: nil }], [[], { dry_run: 1 }]
  ].freeze

  def names(result) = result.levers.map(&:name)

  def refusal(*levers, **options)
    assert_raises(ArgumentError) { Memscope.purge(*levers, **options) }.message
  end

  def allowed(allocator) = LEVERS.fetch(allocator).map(&:inspect).join(", ")

  def test_levers_run_in_order_and_once
    skip_without_compaction

    assert_equal %i[gc compact], names(Memscope.purge(:compact, :gc, :gc))
  end

  def test_a_compaction_that_cannot_be_done_any_more_says_why
    skip_without_compaction
    reason, levers = child_json(<<~RUBY, requires: %w[json memscope/action/purge/compaction])
      Memscope::Purge::Compaction.define_singleton_method(:run) { raise NotImplementedError, "a Ractor was started" }
      result = Memscope.purge(:compact, :gc)
      puts JSON.generate([result[:compact].reason, result.levers.map(&:name)])
    RUBY

    assert_equal "a Ractor was started", reason
    assert_equal %w[gc compact], levers
  end

  # If no lever was named, the result says what Ruby itself cannot do.
  def test_a_refused_compaction_is_a_reason
    assert_equal Memscope::Purge.missing.slice(:compact).compact, Memscope.purge(dry_run: true).reasons.slice(:compact)
    assert_empty Memscope.purge(:gc, dry_run: true).reasons.slice(:compact)
  end

  def test_what_refuses_a_compaction
    skip "this Ruby can compact its heap" if OWN.include?(:compact)

    assert_includes refusal(:compact),
                    "; :compact is not available: GC.compact can crash Ruby #{RUBY_VERSION} (ruby/ruby#"
    assert_match(/^  compact: GC\.compact can crash Ruby/, Memscope.purge(dry_run: true).to_s)
  end

  both_allocators "every lever by default in a small process" do |preload|
    skip_under_sanitizer
    names = child_json("puts JSON.generate(Memscope.purge.levers.map(&:name))", preload: preload, requires: ["json"])

    assert_equal LEVERS.fetch(preload ? :jemalloc : :glibc).map(&:name), names
  end

  def test_subscribers_hear_of_a_purge
    result = nil
    heard = payloads(:purge) do
      Memscope.purge(:gc, dry_run: true)
      assert_raises(ArgumentError) { Memscope.purge(:vacuum) }
      result = Memscope.purge(:gc)
    end

    assert_equal [result.to_h.except(:before, :after)], heard
    assert_operator JSON.generate(heard).bytesize, :<, 4096
  end

  # While the forked child of a walk lives, it shares every page. Alone, this process shares hardly any. On a busy
  # machine a purge may find no time between two walks: then what the machine gained is unknown.
  def test_a_walk_for_the_history_does_not_change_what_the_machine_gains
    skip_under_sanitizer
    purges = child_json(<<~RUBY, requires: %w[json memscope/judge/history])
      GC.disable
      kept = Array.new(100_000) { |index| "kept \#{index} " * 10 }
      sampler = Memscope::History::Sampler.new
      walking = true
      walker = Thread.new { sampler.send(:held) && sleep(0.01) while walking }
      trapped = Queue.new
      trap(:USR1) { trapped << Memscope.purge(:gc) }
      purges = Array.new(3) do
        Array.new(150_000) { |index| "row \#{index} " * 10 }
        Memscope.purge(:gc, :trim)
      end
      Process.kill(:USR1, Process.pid)
      trapped.pop
      walking = false
      walker.join
      purges << Memscope.purge(:gc, :trim)
      puts JSON.generate(purges.map { |purge| [purge.returned_bytes, purge.returned_private_bytes, purge.after.rss_bytes] })
    RUBY

    refute_nil purges.last[1]
    purges.each { |returned, own, rest| assert_in_delta returned, own, rest / 20 if own }
  end

  both_allocators "wrong arguments are refused before anything is done" do |preload|
    messages, before, after = child_json(<<~RUBY, preload: preload, requires: %w[json memscope_test])
      refused = #{REFUSED.inspect.gsub('NaN', 'Float::NAN').gsub('Infinity', 'Float::INFINITY')}
      state = -> { [GC.count, Host.mallctl("stats.arenas.4096.dirty_npurge", 8)] }
      Memscope.purge(dry_run: true)
      GC.disable
      before = state.call
      messages = refused.map do |levers, options|
        Memscope.purge(:gc, *levers, **options)
        nil
      rescue ArgumentError => e
        e.message
      end
      puts JSON.generate([messages, before, state.call])
    RUBY

    messages.each.with_index { |message, index| assert_match MESSAGE, message, REFUSED[index].inspect }
    assert_equal before, after
  end

  def test_messages
    skip_under_sanitizer

    assert_equal "Memscope.purge: lever: given :vacuum, allowed: #{allowed(:glibc)}", refusal(:vacuum)
    assert_equal "Memscope.purge: lever: given :purge, allowed: #{allowed(:glibc)}; :purge is not available: only " \
                 "jemalloc has this lever, and glibc serves malloc", refusal(:gc, :purge)
    assert_raises(ArgumentError) { Memscope.purge(dryrun: true) }
  end

  def test_messages_under_jemalloc
    skip_under_sanitizer
    message = child_json(<<~RUBY, preload: JEMALLOC, requires: ["json"])
      begin
        Memscope.purge(:trim)
      rescue ArgumentError => e
        puts JSON.generate(e.message)
      end
    RUBY

    assert_equal "Memscope.purge: lever: given :trim, allowed: #{allowed(:jemalloc)}; :trim is not " \
                 "available: only glibc has this lever, and jemalloc serves malloc", message
  end

  # Every key that the engine writes to or acts through is in one file, except those of the profile.
  def test_the_keys_that_are_written_to
    engine = File.join(ChildProcess::ROOT, "ext/memscope/engine")
    calls = File.read(File.join(engine, "malloc/jemalloc_control.c")).scan(/\bcontrol\((.+?),/).join
    sources = Dir[File.join(engine, "**/*.{c,h,def}")].map { |path| File.read(path).gsub(%r{/\*.*?\*/}m, "") }.join

    assert_equal %w[arenas.narenas arena.0.decay arena.0.purge thread.tcache.flush arenas.dirty_decay_ms
                    arenas.muzzy_decay_ms arena.0.dirty_decay_ms arena.0.muzzy_decay_ms background_thread],
                 calls.scan(/"(.+?)"/).flatten.uniq
    assert_equal %w[prof.active prof.dump prof.reset], sources.scan(/write_key\("([^"]+)"/).flatten.uniq.sort
    assert_empty sources.scan(/"[^"]*(?:(?<!prof)\.reset|\.destroy|extent_hooks|arenas\.lookup|arena\.4096)/)
  end

  def test_only_one_thread_purges_at_a_time
    purge = Memscope::Purge
    inside = Queue.new
    leave = Queue.new
    holder = Thread.new do
      purge.with_exclusive_purge do
        inside << true
        leave.pop
      end
    end
    inside.pop

    busy = assert_raises(purge::Busy) { Memscope.purge(:gc) }

    assert_match(/another thread of this process is purging/, busy.message)
    assert_predicate Memscope.purge(:gc, dry_run: true), :dry_run?
    leave << true
    holder.join

    assert_equal [:gc], names(Memscope.purge(:gc))
  end

  def test_a_purge_that_is_interrupted_leaves_the_way_free
    assert_raises(RuntimeError) { Memscope::Purge.with_exclusive_purge { raise "interrupted" } }
    killed = Thread.new { Memscope::Purge.with_exclusive_purge { sleep } }
    Thread.pass until killed.stop?
    killed.kill.join

    assert_equal [:gc], names(Memscope.purge(:gc))
  end

  # Whenever the interrupt arrives: right after the purge's claim was taken, right before its release, or in between.
  def test_a_purge_that_is_interrupted_at_any_moment_leaves_the_way_free
    30.times do
      purging = Thread.new { loop { Memscope::Purge.with_exclusive_purge { nil } } }
      purging.report_on_exception = false
      sleep(rand * 0.001)
      purging.raise("interrupted")

      assert_equal "interrupted", assert_raises(RuntimeError) { purging.join }.message
      assert_equal(:free, Memscope::Purge.with_exclusive_purge { :free })
    end
  end

  both_allocators "a child forked during a purge is free to purge" do |preload|
    statuses = child_json(<<~RUBY, preload: preload, requires: ["json"])
      inside = Queue.new
      Thread.new { Memscope::Purge.with_exclusive_purge { inside << true; sleep } }
      inside.pop
      by_other_thread = fork { exit!(Memscope.purge(:gc).levers.size == 1 ? 0 : 1) }
      statuses = [Process.wait2(by_other_thread).last.exitstatus]
      begin
        Memscope.purge(:gc)
      rescue Memscope::Purge::Busy
        statuses << 0
      end
      # And a child forked by the purging thread itself, which continues in the child.
      reader, writer = IO.pipe
      pid = fork do
        Memscope::Purge.with_exclusive_purge do
          child = fork { exit!(Memscope.purge(:gc).levers.size == 1 ? 0 : 1) }
          writer.puts Process.wait2(child).last.exitstatus
        end
        exit!(0)
      end
      Process.wait(pid)
      puts JSON.generate(statuses << reader.gets.to_i)
      $stdout.flush
      exit!(0)
    RUBY

    assert_equal [0, 0, 0], statuses
  end

  def test_without_proc_nothing_is_known_of_what_was_returned
    purged = ChildProcess.run(<<~RUBY, requires: ["json"]).json
      def require(feature) = feature == "memscope/memscope.so" ? raise(LoadError, "cannot load it") : super
      require "memscope"
      result = Memscope.purge(:gc)
      refused = begin
        Memscope.purge(:trim)
      rescue ArgumentError => e
        e.message
      end
      puts JSON.generate([result.returned_bytes, result.rows, result.levers.map(&:name), result.reasons, refused,
                          Memscope::Purge.missing[:compact], Memscope.tune.arenas, result.to_s.lines.size > 3])
    RUBY

    assert_equal [nil, {}, ["gc"]], purged.first(3)
    assert_match(/cannot load it/, purged[3]["extension"])
    assert_match(/:trim is not available: .*cannot load it/, purged[4])
    assert_equal [Memscope::Purge.missing[:compact], [], true], purged.last(3)
  end
end
