# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/diagnosed"

# The rules of the garbage collector and its heap.
class DoctorRubyRulesTest < MemscopeTest
  include Diagnosed

  finds(
    possible_garbage: [:info, 192, { ledger: { garbage_max_bytes: 192 * MEBIBYTE }, snapshot: Charts.overdue }],
    native_memory: [:info, 50, { malloc: Charts.glibc(untracked: 50) }],
    stacks: [:info, 60, { rows: [Bodies.row(:stacks, "stacks", 60)] }],
    collector_off: [:warning, nil, { ruby_heap: { gc_disabled: true }, ledger: { garbage_max_bytes: 64 * MEBIBYTE } }],
    allocation_tracing: [:warning, 60, { environment: { allocation_tracing: true },
                                         ruby_heap: { live_slots: 655_360 } }],
    compactable_heap: [:warning, 30, { ruby_heap: { compactable_bytes: 30 * MEBIBYTE, live_slots: 200_000 } }],
    empty_heap_pages: [:warning, 25, { ruby_heap: { hidden_empty_pages: 1_600, live_slots: 300_000, ruby: "3.4.1" } }]
  )

  COLLECTED = { pause_us: 9, returned_bytes: 0, unshared_bytes: 0 }.freeze
  FULL = { malloc: Charts.glibc(untracked: 50, main_free: 190, main_trimmable: 180) }.freeze

  def test_stacks_lead_to_those_that_keep_most
    { "Fiber" => [50, 10], "Thread" => [10, 50] }.each do |type, (fibers, threads)|
      children = [Bodies.row(:threads, "threads", threads), Bodies.row(:fibers, "fibers", fibers)]
      found = assert_found(:info, :stacks, rows: [Bodies.row(:stacks, "stacks", 60, children: children)])

      assert_equal "60.0 MiB is stacks: #{fibers}.0 MiB of fibers, #{threads}.0 MiB of threads", found.title
      assert_match(/--paths-to #{type}\z/, found.remedy)
    end
  end

  def test_stacks_that_no_row_has
    check = diagnose(ledger: { reasons: { threads: "why" } }).checked.find { |one| one.id == :stacks }

    assert_equal [:unknown, "why"], [check.outcome, check.reason]
  end

  def test_a_gc_that_is_off
    { { ruby_heap: { gc_disabled: true } } => ["the GC is disabled: nothing is collected", "GC.disable", "GC.enable"],
      { environment: { major_collections: false } } =>
        ["no old object is collected", "GC.config(rgengc_allow_full_mark: false)",
         "GC.config(rgengc_allow_full_mark: true)"] }.each do |chart, (title, called, remedy)|
      found = assert_found(:info, :collector_off, **chart)

      assert_equal [title, "#{remedy} # in the program"], [found.title, found.remedy]
      assert_includes found.explanation, "The program has called #{called}."

      assert_found(:warning, :collector_off, **chart, garbage: Charts.garbage(64))
      text = diagnose(**chart, **FULL, ledger: { collected: COLLECTED }).to_s

      assert_match(/WARNING +#{title}/, text)
      refute_match(/headroom between/, text.gsub(/\s+/, " "))
      possible = finding(diagnose(**chart, ledger: { garbage_max_bytes: 192 * MEBIBYTE }, snapshot: Charts.overdue),
                         :possible_garbage)

      assert_includes possible.explanation, "None comes by itself: #{called} was called."
    end
  end

  def test_when_the_next_full_gc_comes
    counted = { oldmalloc_increase_bytes: 5 * MEBIBYTE, oldmalloc_increase_bytes_limit: 16 * MEBIBYTE, old_objects: 90,
                malloc_increase_bytes_limit: 0, old_objects_limit: 900 }
    told = lambda do |variables: {}, **gc|
      finding(diagnose(snapshot: { gc: { **counted, **gc } }, environment: { variables: variables },
                       garbage: Charts.garbage(64)), :possible_garbage).explanation
    end

    assert_match(/The next one comes when malloc has grown by 16\.0 MiB or 900 objects are old \(now 90\)\.\z/,
                 told.call)
    assert_match(/next GC that Ruby makes is a full one\.\z/, told.call(old_objects: 900))
    assert_match(/RUBY_GC_OLDMALLOC_LIMIT=999m raised the limit\.\z/,
                 told.call(variables: { RUBY_GC_OLDMALLOC_LIMIT: "999m", RUBY_GC_MALLOC_LIMIT: "9m" }))
  end

  # Beside Ractors, Ruby 4.0 does not list its pages.
  def test_a_heap_without_pages
    unlisted = %i[pages slots live_slots empty_pages hidden_empty_pages compactable_bytes].to_h { |name| [name, nil] }
    checks = diagnose(ruby_heap: unlisted, environment: { variables: { RUBY_GC_HEAP_INIT_SLOTS: "4000000" } }).checked

    assert_equal :unknown, checks.find { |check| check.id == :empty_heap_pages }.outcome
  end

  # Nothing says "collect garbage first" after a collection.
  def test_after_a_collection
    charts = [{ untracked: 50 }, { arenas: 12, arenas_free: 52, arenas_trimmable: 2 },
              { main_free: 130, main_trimmable: 10 }].map { |malloc| { malloc: Charts.glibc(**malloc) } }
    charts.each do |chart|
      assert_match(/doctor --pid \d+ --gc|Collect garbage first/, diagnose(**chart).to_s)
      refute_match(/doctor --pid \d+ --gc|Collect garbage first|A collection may/,
                   diagnose(**chart, ledger: { collected: COLLECTED }).to_s)
    end
  end

  # What no collection returns is no warning, and has no remedy.
  def test_empty_pages_that_ruby_keeps_as_long_as_its_objects_live
    found = assert_found(:info, :empty_heap_pages, ruby_heap: { hidden_empty_pages: 1_600 }, ledger: { ruby: "3.1.2" })

    assert_equal [0, 0, nil], [found.recoverable_bytes, found.recoverable_max_bytes, found.remedy]
  end

  # There, the remedy may cost more than it returns.
  def test_empty_pages_of_a_forked_worker_are_no_warning
    found = assert_found(:info, :empty_heap_pages, environment: { forked: true }, ledger: { ruby: "3.4.1" },
                                                   ruby_heap: { hidden_empty_pages: 1_600, live_slots: 300_000,
                                                                ruby: "3.4.1" })

    assert_match(/\AProcess\.warmup.*; .*Pages that a forked worker shares with its parent become private/,
                 [found.remedy, found.remedy_cost].join("; "))
  end

  def test_variables_that_keep_empty_pages
    heap = { live_slots: 20_000, hidden_empty_pages: 1_600, free_slots_floor: 4_000_000 }
    { "RUBY_GC_HEAP_INIT_SLOTS" => "4000000", "RUBY_GC_HEAP_0_INIT_SLOTS" => "4M",
      "RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO" => "0.90" }.each do |name, value|
      found = assert_found(:info, :empty_heap_pages, ruby_heap: heap,
                                                     environment: { variables: { name.to_sym => value } })

      assert_equal ["#{name}=#{value} keeps these pages.", "unset #{name}"], [found.unrecoverable_reason, found.remedy]
      assert_includes found.explanation, found.unrecoverable_reason
    end
    counted = { pages: 40, slots: 40_000, live_slots: 39_000, empty_pages: 900, free_slots_floor: 4_000_000,
                page_bytes: 65_536, compactable_bytes: 0, ruby: "4.0.5" }
    found = assert_found(:info, :empty_heap_pages, ruby_heap: counted,
                                                   environment: { variables: { RUBY_GC_HEAP_0_INIT_SLOTS: "4000000" } })

    assert_equal "56.2 MiB of Ruby's heap is empty pages", found.title
    assert_clear :empty_heap_pages, diagnose(ruby_heap: counted)
    [["RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO", "0.40", 4_000_000], ["RUBY_GC_HEAP_INIT_SLOTS", "20000", 20_000]]
      .each do |name, value, floor|
        found = assert_found(:warning, :empty_heap_pages, ruby_heap: { **heap, free_slots_floor: floor, ruby: "3.4.1" },
                                                          environment: { variables: { name.to_sym => value } })

        refute_includes found.explanation, name
      end
  end

  def test_a_compaction_that_can_crash_is_not_advised
    %w[3.1.0 3.1.3 3.2.0].each do |ruby|
      found = assert_found(:warning, :compactable_heap,
                           ruby_heap: { live_slots: 450_000, compactable_bytes: 1_400 * 16_384, ruby: ruby })

      assert_equal [nil, nil, nil], [found.remedy, found.remedy_cost, found.recoverable_bytes]
      assert_match(/\AGC\.compact can crash Ruby #{ruby} .*: upgrade to 3\.1\.4, 3\.2\.1 or newer; .* restart .*\.\z/,
                   found.unrecoverable_reason)
    end
  end

  def test_a_process_too_small_to_judge
    malloc = Charts.glibc
    malloc[:rows] = []
    diagnosis = diagnose(malloc: malloc, ledger: { rss_bytes: mebibytes(20) })

    assert_equal %i[too_small incomplete], [diagnosis.first.id, diagnosis.verdict]
  end
end
