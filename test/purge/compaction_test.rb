# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"
require "memscope/purge/compaction"

# The arithmetic of forecasts, on made-up heaps; test/acceptance has real ones.
class CompactionTest < MemscopeTest
  Compaction = Memscope::Purge::Compaction
  PAGE = 16_384

  # 1000 pages of 400 slots, a tenth of them live and none pinned.
  def heap(ruby: "3.1.4", live: 40_000, compactable: 900, **given)
    sizes = { slots: 400_000, live_slots: live, pages: 1000, compactable_min_bytes: (compactable - 5) * PAGE,
              compactable_bytes: compactable * PAGE, pinned_pages_min: 0, pinned_pages_max: 5 }
    body = { page_bytes: PAGE, empty_pages: 0, old_objects: live, allocatable_pages: 0, free_slots_max_ratio: 0.65,
             free_slots_floor: 10_000, collected: true, **sizes, slot_sizes: [{ slot_size: 40, **sizes }], reasons: {},
             cost: Bodies.cost, **given }
    Memscope::RubyHeap.from_h(Memscope::RubyHeap.capture(body).to_h.merge(ruby: ruby))
  end

  def pages(...) = Compaction.forecast(heap(...)).range&.then { |range| [range.begin / PAGE, range.end / PAGE] }

  def reason(...) = Compaction.forecast(heap(...)).reason

  def test_by_the_ratio_that_ruby_keeps_free
    assert_equal [700, 715], pages(allocatable_pages: 0)
    assert_equal [880, 900], pages(allocatable_pages: 300)
  end

  def test_by_the_settings_of_that_rule
    assert_equal [852, 867], pages(free_slots_max_ratio: 0.25)
    assert_equal [585, 600], pages(free_slots_floor: 120_000)
  end

  def test_fuller_than_the_ratio
    assert_equal [0, 0], pages(live: 200_000, compactable: 500)
  end

  def test_ruby_3_3_returns_what_can_be_compacted
    assert_equal [890, 900], pages(ruby: "3.3.8", allocatable_pages: 0)
    assert_equal [490, 500], pages(ruby: "3.3.8", live: 200_000, compactable: 500)
  end

  def test_ruby_3_4_keeps_a_number_of_slots
    assert_equal [855, 900], pages(ruby: "3.4.1", allocatable_pages: nil)
  end

  def test_pages_that_are_empty_already
    assert_equal [990, 1000], pages(ruby: "3.3.8", empty_pages: 100)
  end

  def test_little_is_no_promise
    assert_equal [0, 40], pages(ruby: "3.3.8", live: 384_000, compactable: 40)
  end

  def test_garbage_widens_the_range_until_it_is_none
    assert_equal [890, 975], pages(ruby: "3.3.8", old_objects: 10_000, collected: false)
    assert_match(/\A290000 of 300000 live slots may be garbage: read with collect: true\z/,
                 reason(ruby: "3.3.8", live: 300_000, compactable: 250, old_objects: 10_000, collected: false))
  end

  def test_pins_that_may_or_may_not_be
    assert_equal "200 to 700 of 1000 pages hold objects that cannot be moved",
                 reason(ruby: "3.3.8", compactable_min_bytes: 300 * PAGE, compactable_bytes: 800 * PAGE,
                        pinned_pages_min: 200, pinned_pages_max: 700)
  end

  def test_nothing_is_forecast_of_a_heap_that_is_not_compacted
    assert_match(/\AGC\.compact can crash Ruby 3\.1\.2 /, reason(ruby: "3.1.2"))
    assert_match(/\AGC\.compact can crash Ruby 3\.2\.0 /, reason(ruby: "3.2.0", pages: nil))
  end

  def test_what_is_not_known
    assert_match(/3\.2\.9 returns was not measured/, reason(ruby: "3.2.9"))
    assert_equal "no heap pages could be listed", reason(pages: nil)
    assert_equal "other Ractors", reason(compactable_min_bytes: nil, reasons: { pinned_pages_max: "other Ractors" })
    assert_nil Compaction.forecast(heap(ruby: "3.2.9")).range
  end

  def test_what_is_kept_for_a_setting
    kept = ->(pages, **given) { Compaction.kept_by_setting(heap(**given), pages * PAGE) / PAGE }

    assert_equal([334, 100], [500, 100].map { |pages| kept.call(pages, live: 200_000) })
    assert_equal 867 - 715, kept.call(900)
    [{ free_slots_max_ratio: 0.21 }, { ruby: "3.2.9" }, { ruby: "3.3.8" }, { allocatable_pages: nil }].each do |given|
      assert_equal 0, kept.call(500, live: 200_000, **given), given
    end
  end

  def test_what_collections_return_of_empty_pages
    returned = ->(**given) { Compaction.returned_of_empty(heap(**given), 900 * PAGE) / PAGE }

    assert_equal [715, 0, 900], [returned.call, returned.call(live: 200_000), returned.call(ruby: "3.3.8")]
  end

  def test_the_passes
    skip_without_compaction
    outcome = Compaction.run

    assert_equal outcome.pages_after, GC.stat(:heap_allocated_pages)
    assert_includes [%w[compact gc], %w[warmup]], outcome.passes.uniq
    assert_operator outcome.wall_ms, :>, 0
    assert_nil Compaction.missing
  end

  # Makes an invalid address of the words above the top of a thread's stack, which GC.compact takes for objects where it
  # is refused: from struct rb_thread_struct to its execution context, the frame on top, its first free word.
  SPOIL = <<~RUBY
    word = ->(address) { Fiddle::Pointer.new(address)[0, 8].unpack1("Q") }
    spoil = lambda do |thread, words|
      context = word.(word.(Fiddle.dlwrap(thread) + 32) + (RUBY_VERSION < "3.2" ? 40 : 48))
      Fiddle::Pointer.new(word.(word.(context + 16) + 8))[0, 8 * words] = [0x1000].pack("Q") * words
    end
  RUBY

  # Whose stack, and when.
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

  # Refused where this crashes, and nowhere else.
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

    requires = %w[json memscope/purge/compaction]
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
    assert_match(/:compact is not there: other Ractors/, message)
    assert_equal missing, reason
  end
end
