# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/diagnosed"
require_relative "../support/histories"

class DoctorTest < MemscopeTest
  include Diagnosed
end

class DoctorRulesTest < DoctorTest
  # Each rule: what makes its finding, how severe, and how many MiB it is about (nil for no amount).
  FOUND = {
    trimmable: [:warning, 81, { malloc: Charts.glibc(main_free: 90, main_trimmable: 80) }],
    glibc_arenas: [:warning, 50, { malloc: Charts.glibc(arenas: 12, arenas_free: 52, arenas_trimmable: 2) }],
    malloc_thp: [:warning, 48, { malloc: Charts.glibc(main_free: 60, main_trimmable: 10),
                                 allocator: { settings: { hugetlb: 1 } },
                                 process_memory: { anonymous_huge_bytes: 48 * MEBIBYTE, thp_enabled: true } }],
    glibc_holes: [:warning, 120, { malloc: Charts.glibc(main_free: 130, main_trimmable: 10) }],
    slab_slack: [:warning, 64, { malloc: Charts.jemalloc(slab_slack: 64) }],
    muzzy_pages: [:info, 64, { malloc: Charts.jemalloc(muzzy: 64) }],
    retained_resident: [:warning, 64, { malloc: Charts.jemalloc(retained_resident: 64) }],
    huge_pages: [:info, 90, { process_memory: { anonymous_huge_bytes: 90 * MEBIBYTE } }],
    native_memory: [:info, 50, { malloc: Charts.glibc(untracked: 50) }],
    swapped: [:warning, 32, { process_memory: { swap_bytes: 32 * MEBIBYTE } }],
    near_limit: [:warning, 300, { cgroup: { limit_bytes: 330 * MEBIBYTE } }],
    out_of_memory: [:warning, nil, { cgroup: { limit_bytes: 900 * MEBIBYTE, events: { oom_kill: 2 } } }],
    idle_allocator: [:warning, 128, { problems: { idle_allocator: {} } }],
    preload_without_effect: [:warning, nil, { problems: { preload_without_effect: {} } }],
    invalid_settings: [:warning, nil, { problems: { invalid_value: {} } }],
    harmful_settings: [:warning, nil, { problems: { debugging: {} } }],
    possible_garbage: [:info, 192, { ledger: { garbage_max_bytes: 192 * MEBIBYTE }, snapshot: Charts.overdue }],
    too_many_arenas: [:info, nil, { problems: { too_many_arenas: { severity: :info,
                                                                   replacement: "MALLOC_CONF=narenas:2" } } }],
    crashing_profiler: [:warning, nil, { problems: { crashing_profiler: {} } }],
    compactable_heap: [:warning, 30, { ruby_heap: { compactable_bytes: 30 * MEBIBYTE, live_slots: 200_000 } }],
    empty_heap_pages: [:warning, 25, { ruby_heap: { hidden_empty_pages: 1_600, live_slots: 300_000, ruby: "3.4.1" } }],
    collector_off: [:warning, nil, { ruby_heap: { gc_disabled: true }, ledger: { garbage_max_bytes: 64 * MEBIBYTE } }],
    allocation_tracing: [:warning, 60, { environment: { allocation_tracing: true },
                                         ruby_heap: { live_slots: 655_360 } }],
    mappings: [:warning, nil, { ledger: { mappings: 57_425 }, environment: { max_mappings: 65_530 } }]
  }.freeze

  FOUND.each do |id, (severity, about, chart)|
    define_method("test_#{id}") do
      found = assert_found(severity, id, **chart)
      about.nil? ? assert_nil(found.affected_bytes) : assert_equal(mebibytes(about), found.affected_bytes)

      assert(found.recoverable_bytes || found.unrecoverable_reason)
    end
  end

  def test_when_the_remedies_of_settings_take_effect
    ruby = { background_thread: { replacement: "Memscope.tune(background_thread: true)" } }
    setting = { debugging: { replacement: "MALLOC_CONF=junk:false" } }

    { ruby => "takes effect at once", setting => "requires a restart",
      { **ruby, **setting } => "requires a restart, except for the Ruby code" }.each do |problems, cost|
      assert_equal cost, assert_found(:warning, :harmful_settings, problems: problems).remedy_cost
    end
  end

  def test_nothing_wrong
    [diagnose, diagnose(malloc: jemalloc)].each do |diagnosis|
      assert_predicate diagnosis, :healthy?
      assert_empty diagnosis.map(&:id)
      assert_operator diagnosis.checked.count { |check| check.outcome == :clear }, :>=, 10
    end
  end

  def test_every_rule_is_checked_once_and_its_lines_fit
    rules = Memscope::Doctor::Rules.all.map(&:id)

    assert_equal rules.uniq, rules
    assert_equal rules, diagnose.checked.map(&:id)
    FOUND.each_value do |_, _, chart|
      assert_operator diagnose(**chart).to_s.lines.map { |line| line.chomp.length }.max, :<=, 80
    end
  end

  # A large share of little memory is not worth a remedy, nor is a small share of much.
  def test_both_a_floor_and_a_ratio
    assert_clear :slab_slack, diagnose(malloc: jemalloc(in_use: 20, slab_slack: 15))
    assert_clear :slab_slack, diagnose(malloc: jemalloc(in_use: 900, slab_slack: 100))
    found = assert_found(:warning, :slab_slack, malloc: jemalloc(slab_slack: 64))

    assert_equal [mebibytes(16), 0.15, "rss_bytes"],
                 found.evidence.values_at(:floor_bytes, :floor_ratio, :floor_ratio_of)
  end

  # Ruby lets malloc grow between two collections: any process that makes garbage has that much free memory.
  def test_room_for_garbage_is_not_a_warning
    assert_found :info, :trimmable, malloc: Charts.glibc(main_free: 40, main_trimmable: 40)
    assert_found :warning, :trimmable, malloc: Charts.glibc(main_free: 60, main_trimmable: 60)
  end

  def test_trimmable_memory_that_the_machine_does_not_gain
    shared = assert_found :info, :trimmable, malloc: Charts.glibc(main_free: 90, main_trimmable: 80,
                                                                  trimmable_private: 3)
    locked = assert_found :info, :trimmable, malloc: Charts.glibc(main_free: 90, main_trimmable: 0, arenas_trimmable: 0,
                                                                  kept: 80)

    assert_match(/other processes share most of it/, shared.title)
    assert_match(/\Abefore_fork/, shared.remedy)
    assert_equal [mebibytes(3), mebibytes(3)], [shared.recoverable_bytes, shared.recoverable_max_bytes]
    assert_match(/the kernel does not take it back/, locked.title)
    assert_equal [nil, nil, mebibytes(80)], [locked.recoverable_bytes, locked.remedy, locked.affected_bytes]
    assert_match(/are locked \(mlock, mlockall\)/, locked.unrecoverable_reason)
  end

  # Whether only a restart returns pages between used blocks is known after a collection: garbage may keep them.
  def test_garbage_may_keep_what_no_lever_returns
    { glibc_arenas: [Charts.glibc(arenas: 12, arenas_free: 52, arenas_trimmable: 2), /MALLOC_ARENA_MAX/],
      glibc_holes: [Charts.glibc(main_free: 130, main_trimmable: 10), /memscope exec /],
      slab_slack: [jemalloc(slab_slack: 64), /memscope report /] }.each do |id, (malloc, remedy)|
      unjudged, judged = [40 * MEBIBYTE, 100_000].map do |bytes|
        assert_found(:warning, id, malloc: malloc, ledger: { garbage_max_bytes: bytes })
      end

      assert_match(/\AUp to 40\.0 MiB of what is in use may be garbage\. A collection may free/,
                   unjudged.unrecoverable_reason)
      assert_match(/\Amemscope doctor --pid \d+ --gc\n#{remedy}/, unjudged.remedy)
      assert_match(/\Athe first command takes a full GC/, unjudged.remedy_cost)
      refute_match(/no trim|only a restart/, "#{unjudged.title} #{unjudged.explanation}")
      assert_equal :likely, unjudged.confidence
      assert_match(/no trim returns|no lever/, judged.unrecoverable_reason)
      assert_match(/\A#{remedy}/, judged.remedy)
    end
  end

  # glibc 2.43 on arm64 asks for huge pages by default; memory that a trim returns is not a warning.
  def test_who_asks_for_huge_pages
    outcome = lambda do |version, enabled: true, mode: "madvise", **settings|
      diagnosis = diagnose(malloc: Charts.glibc(main_free: 60, main_trimmable: 50),
                           allocator: { version: version, settings: settings }, environment: { thp_mode: mode },
                           process_memory: { anonymous_huge_bytes: 90 * MEBIBYTE, thp_enabled: enabled })
      [diagnosis.find { |found| found.id == :malloc_thp }&.severity,
       diagnosis.checked.find { |check| check.id == :huge_pages }.outcome]
    end

    assert_equal %i[info inapplicable], outcome.call("2.43")
    assert_equal %i[info inapplicable], outcome.call("2.36", hugetlb: 1)
    [["2.42"], ["2.43", { hugetlb: 0 }], ["2.43", { hugetlb: 2 }], ["2.43", { enabled: false }],
     ["2.43", { mode: "always" }]].each do |version, given|
      assert_equal [nil, :found], outcome.call(version, **given.to_h), [version, given].inspect
    end
  end

  def test_few_arenas_are_not_too_many
    assert_clear :glibc_arenas, diagnose(malloc: Charts.glibc(arenas: 2, arenas_free: 52))
  end

  def test_a_process_too_small_to_judge
    malloc = Charts.glibc
    malloc[:rows] = []
    diagnosis = diagnose(malloc: malloc, ledger: { rss_bytes: mebibytes(20) })

    assert_equal %i[too_small incomplete], [diagnosis.first.id, diagnosis.verdict]
  end

  def test_a_container_almost_full_is_critical
    diagnosis = diagnose(cgroup: { limit_bytes: mebibytes(310) })

    assert_equal %i[critical near_limit], [diagnosis.severity, diagnosis.first.id]
  end

  def test_swap_counts_as_the_platform_has_it
    swapped = { process_memory: { swap_bytes: mebibytes(32) } }

    { "Heroku's quota" => { environment: { variables: { DYNO: "web.1" } } },
      "counts memory and swap together" => { cgroup: { memory_and_swap_limit_bytes: mebibytes(600) } },
      "a separate limit on swap, 100.0 MiB" => { cgroup: { swap_limit_bytes: mebibytes(100) } },
      "no limit on swap" => {} }.each do |words, platform|
      assert_includes finding(diagnose(**swapped, **platform), :swapped).explanation, words
    end
  end

  def test_what_lint_says_is_pasted
    found = finding(diagnose(problems: { debugging: { text: "junk:true", replacement: "MALLOC_CONF=a:b" },
                                         never_returned: { text: "for ever", replacement: "MALLOC_CONF=a:b" } }),
                    :harmful_settings)

    assert_equal ["junk:true", "MALLOC_CONF=a:b"], [found.title, found.remedy]
    assert_match(/\Afor ever\. .*--settings/, found.explanation)
  end

  def test_what_most_mappings_are_of
    stacks = Bodies.row(:stacks, "stacks", 8, children: [Bodies.row(:fibers, "", 8, detail: { stacks: 27_000 })])
    most = { environment: { max_mappings: 65_530 }, rows: [stacks] }
    severities = [49_000, 55_000, 64_000].map { |number| diagnose(**most, ledger: { mappings: number }) }
                                         .map { |one| one.find { |found| found.id == :mappings }&.severity }
    found = finding(diagnose(**most, ledger: { mappings: 55_000 }), :mappings)

    assert_equal %i[info warning critical], severities
    assert_equal "55,000 of 65,530 mappings are in use", found.title
    assert_match(/ Of these mappings, 54,000 are of stacks of fibers\.\z/, found.explanation)
    assert_match(/--paths-to Fiber\nsysctl vm\.max_map_count=\d+\z/, found.remedy)
    assert_equal :inapplicable, diagnose.checked.find { |check| check.id == :mappings }.outcome
  end

  def test_what_cannot_be_read_is_unknown
    diagnosis = diagnose(process_memory: { swap_bytes: nil, anonymous_huge_bytes: nil })
    outcomes = diagnosis.checked.to_h { |check| [check.id, check.outcome] }

    assert_equal %i[unknown unknown], outcomes.values_at(:swapped, :huge_pages)
  end

  def test_without_a_ledger_nothing_is_judged
    malloc = Charts.glibc
    nothing = { rows: [], rss_bytes: nil, source: :none, held_by_objects_bytes: nil }
    diagnosis = diagnose(malloc: malloc, ledger: nothing)

    assert_nil diagnosis.healthy?
    assert_includes diagnosis.to_s, "No verdict: the RSS of this process is unknown"
    refute_includes diagnosis.to_s, "Nothing wrong"
  end
end

class DoctorDirtyPagesTest < DoctorTest
  DIRTY = { dirty: 100 }.freeze

  def dirty(malloc: {}, **chart)
    diagnose(malloc: jemalloc(**DIRTY, **malloc), **chart).find { |found| found.id == :dirty_pages }
  end

  def assert_dirty(severity, confidence, found)
    assert_equal [severity, confidence, mebibytes(100), mebibytes(100)],
                 [found.severity, found.confidence, found.affected_bytes, found.recoverable_bytes]
  end

  # MiB of freed pages in one of two arenas.
  def arenas(mebibytes, **given)
    busy = { index: 0, threads: 2, dirty_bytes: mebibytes(100 - mebibytes), dirty_decay_ms: 10_000 }
    [busy, { **busy, index: 1, dirty_bytes: mebibytes(mebibytes), **given }]
  end

  def test_decay_is_off
    assert_dirty :warning, :certain, dirty(arenas: arenas(60, dirty_decay_ms: -1))
    assert_dirty :info, :likely, dirty(arenas: arenas(10, dirty_decay_ms: -1))
  end

  def test_arenas_without_threads
    assert_dirty :warning, :certain, dirty(arenas: arenas(60, threads: 0))
    assert_dirty :info, :likely, dirty(arenas: arenas(10, threads: 0))
    assert_nil dirty(arenas: arenas(60, threads: 0), malloc: { background_threads: 1 })
  end

  def test_background_threads_lost_by_a_fork
    lost = { allocator: { settings: { background_thread: true } }, environment: { forked: true } }

    assert_dirty :warning, :certain, dirty(**lost)
    assert_nil dirty(malloc: { background_threads: 1 }, **lost)
  end

  def test_a_fork_that_gives_nothing_back
    forked = { environment: { forked: true } }

    assert_dirty :warning, :likely, dirty(**forked, later: { dirty_npurge: 7 })
    assert_dirty :info, :likely, dirty(**forked, later: { dirty_npurge: 8 })
    assert_dirty :info, :likely, dirty(**forked)
    assert_dirty :info, :likely, dirty(environment: { forked: true, cpu_seconds: 9.5 }, later: { dirty_npurge: 7 })
  end

  # jemalloc counts pages never written to as well.
  def test_dirty_pages_that_may_not_be_resident
    sure, unsure = [-5, -20].map { |amount| dirty(malloc: { not_resident: amount }) }

    assert_equal [mebibytes(100), mebibytes(95)], [sure.affected_bytes, sure.evidence[:least_resident_bytes]]
    assert_equal "jemalloc keeps 100.0 MiB of freed pages", sure.title
    assert_equal [mebibytes(100), mebibytes(80)], [unsure.affected_bytes, unsure.evidence[:least_resident_bytes]]
    assert_equal "jemalloc keeps up to 100.0 MiB of freed pages", unsure.title
    assert_match(/\AUp to \d+ % of RSS is dirty pages: /, unsure.explanation)
    assert_match(/\. Some were never written to; at least 80\.0 MiB in all is resident\.\z/, unsure.explanation)
  end

  def test_dirty_pages_of_which_none_is_known_to_be_resident
    unknown = dirty(malloc: { not_resident: -100 })

    assert_equal 0, unknown.evidence[:least_resident_bytes]
    assert_match(/ Some were never written to\.\z/, unknown.explanation)
  end

  # A page that a forked process shares stays in memory, even if this process returns it.
  def test_dirty_pages_that_are_shared_or_locked
    assert_equal [mebibytes(30), mebibytes(100)], recoverable(dirty(malloc: { shared: 70 }))
    assert_equal [0, mebibytes(35)], recoverable(dirty(malloc: { shared: 195 }))
    locked = { detail: { locked_bytes: mebibytes(235) } }

    assert_equal [0, 0], recoverable(dirty(malloc: locked))
    assert_equal [0, 0], recoverable(dirty(malloc: { detail: { madvise_refused: true } }))
  end

  def recoverable(found) = [found.recoverable_bytes, found.recoverable_max_bytes]

  # One reading cannot tell an idle process from one that has just freed memory.
  def test_an_idle_process
    assert_dirty :info, :likely, dirty
    earlier = diagnose(malloc: jemalloc(**DIRTY), ledger: { at: EARLIER, pid: 7 })

    assert_dirty :warning, :certain, dirty(ledger: { at: LATER, pid: 7 }, since: earlier)
    assert_nil dirty(ledger: { at: LATER, pid: 7 }, since: earlier,
                     snapshot: { jemalloc: { **jemalloc(**DIRTY)[:totals], dirty_purged: 101 } })
  end
end

# An idle process gets one answer: numbers that hardly move do not change the verdict.
class DoctorHysteresisTest < DoctorTest
  def severity(id, held: nil, **chart)
    diagnosis = Memscope::Doctor.diagnose(Charts.evidence(**chart), previous_severities: held)
    diagnosis.find { |found| found.id == id }&.severity
  end

  def test_within_a_tenth_of_the_threshold
    before = [nil, { slab_slack: :info }, { slab_slack: :warning }]
    { 25 => [nil, nil, nil], 28 => %i[info info warning], 31 => %i[warning warning warning] }
      .each do |mebibytes, expected|
        severities = before.map do |held|
          severity(:slab_slack, held: held, malloc: jemalloc(in_use: 80, slab_slack: mebibytes))
        end

        assert_equal expected, severities, mebibytes
      end
  end

  # Each rule whose severity rests on more than its bytes: below its threshold, beyond it by less than a tenth, and
  # more.
  def test_the_margin_is_every_rules
    { compactable_heap: [0.51, 0.47, 0.44, lambda do |at|
      { ruby_heap: { compactable_bytes: 64 * MEBIBYTE, live_slots: (at * 1_000_000).to_i } }
    end],
      glibc_arenas: [24, 26, 29, lambda do |at|
        { malloc: Charts.glibc(arenas: 12, arenas_in_use: 150, arenas_free: 50 * at / 25, arenas_trimmable: 0) }
      end] }.each do |id, (below, within, beyond, chart)|
      assert_equal [nil, :info, :warning], [below, within, beyond].map { |at| severity(id, **chart.call(at)) }, id
      assert_equal :warning, severity(id, held: { id => :warning }, **chart.call(within)), id
      assert_equal :info, severity(id, held: { id => :info }, **chart.call(within)), id
    end
  end

  def test_freed_pages_in_arenas_within_a_tenth_of_the_threshold
    arenas = ->(at) { [{ index: 0, threads: 2, dirty_bytes: mebibytes(at), dirty_decay_ms: -1 }] }
    severities = [[17], [18], [17, { dirty_pages: :warning }]].map do |at, held|
      severity(:dirty_pages, held: held, malloc: jemalloc(dirty: 100), arenas: arenas.call(at))
    end

    assert_equal %i[info warning warning], severities
  end

  def test_a_finding_that_is_never_more_than_info_stays_so
    assert_equal :info, severity(:native_memory, malloc: Charts.glibc(untracked: 50), held: { native_memory: :warning })
  end

  def test_critical_stays_critical
    chart = { cgroup: { limit_bytes: mebibytes(320) } } # 93.75 %

    severities = [nil, :warning, :critical].map { |held| severity(:near_limit, held: { near_limit: held }, **chart) }

    assert_equal %i[warning warning critical], severities
  end
end

class DoctorGrowthTest < DoctorTest
  def test_a_leak_by_the_history
    verdict = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
    found = finding(diagnose(verdict: verdict), :leak)

    assert_match(/\Aleak of native memory: \+[34]\d\.\d MiB.h\z/, found.title)
    assert_includes found.explanation, verdict.sentence
    assert_equal verdict.remedy, found.remedy
    assert_in_delta mebibytes(200), found.affected_bytes, mebibytes(40)
    assert_includes found.evidence.keys, :lasting_seconds
    diagnosis = diagnose(verdict: verdict)

    assert_equal diagnosis, Memscope::Diagnosis.from_json(diagnosis.to_json)
    steady = diagnose(verdict: Histories.judge(5) { {} })

    assert_clear :leak, steady
    assert_equal :inapplicable, diagnose.checked.find { |check| check.id == :leak }.outcome
  end

  # A worker after a deploy: code and caches fill for half an hour.
  def test_a_healthy_worker_in_its_first_hour
    [1, 3, 5, 10, 30, 60].each do |minutes|
      verdict = Histories.judge(Rational(minutes, 60)) do |hour|
        grown = 150 * (1 - Math.exp(-6 * hour))
        { malloc: grown, malloc_in_use: grown, held: 0.7 * grown, ruby_heap: grown / 4, live_bytes: grown / 5 }
      end
      diagnosis = diagnose(verdict: verdict)

      assert_predicate diagnosis, :healthy?, minutes
      assert_match(/By its history: (Too early to tell|Filling|Steady)/, diagnosis.to_s, minutes)
      refute_match(%r{MiB/h}, diagnosis.to_s, minutes) if minutes < 60
    end
  end
end

class DoctorSinceTest < DoctorTest
  def earlier(pid: 7, **chart) = diagnose(**chart, ledger: { at: EARLIER, pid: pid })

  def later(since, pid: 7, **chart) = diagnose(**chart, ledger: { at: LATER, pid: pid }, since: since)

  def test_growth_since_an_earlier_diagnosis_cites_the_history
    leak = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
    since = earlier(malloc: Charts.glibc(untracked: 2))
    grown = later(since, malloc: Charts.glibc(untracked: 42), verdict: leak)

    assert_match(/By its history: Leak of native memory/, finding(grown, :native_growth).explanation)
    assert_equal %i[native_growth leak], grown.map(&:id).first(2)
  end

  def test_native_growth
    since = earlier(malloc: Charts.glibc(untracked: 2))
    grown = later(since, malloc: Charts.glibc(untracked: 42))
    found = finding(grown, :native_growth)

    assert_equal [:warning, mebibytes(40), nil, 60.0],
                 [found.severity, found.affected_bytes, found.recoverable_bytes, found.evidence[:seconds]]
    assert_includes found.explanation, "In 60.0 s, it grew from 2.0 MiB to 42.0 MiB. " # too short for MiB an hour
    refute_match(/Read again in a few minutes/, finding(grown, :native_memory).explanation)
    traced = diagnose(malloc: Charts.glibc(untracked: 42), environment: { allocation_tracing: true },
                      ruby_heap: { live_slots: 655_360 })
    first = finding(diagnose(malloc: Charts.glibc(untracked: 42)), :native_memory)

    assert_match(/Tracing takes up to 60\.0 MiB of it\./, finding(traced, :native_memory).explanation)

    assert_match(/Read again in a few minutes/, first.explanation)
    read = Memscope::Diagnosis.from_json(since.to_json)

    assert_equal grown.findings, later(read, malloc: Charts.glibc(untracked: 42)).findings
  end

  LEFT_OUT = { held_by_objects_bytes: "a lower bound that leaves out 47 of type Arena" }.freeze

  # Which objects were left out may differ from one diagnosis to the next: 60 MiB of sizes that were left out before
  # are no growth of objects, and 60 MiB that are left out now are no growth of native memory.
  def test_growth_without_all_sizes_is_growth_of_what_is_in_use
    amounts = [20, 60]
    some = [{}, LEFT_OUT]
    some.product(some).drop(1).each do |before, after|
      since = diagnose(malloc: Charts.glibc(untracked: 62), ledger: { at: EARLIER, pid: 7, reasons: before })
      same, grown = amounts.map do |arenas|
        diagnose(malloc: Charts.glibc(untracked: 2, arenas_in_use: arenas), since: since,
                 ledger: { at: LATER, pid: 7, reasons: after }, garbage: nil)
      end

      assert_clear :in_use_growth, same
      found = finding(grown, :in_use_growth)

      assert_equal [:info, mebibytes(40)], [found.severity, found.affected_bytes]
      assert_includes found.explanation, LEFT_OUT[:held_by_objects_bytes]
      refute_includes grown.map(&:id), :native_growth
      refute_includes grown.map(&:id), :object_growth
      assert_equal :none, same.verdict
    end
  end

  def test_garbage_is_no_growth_of_what_is_in_use
    chart = lambda do |in_use, garbage|
      { malloc: Charts.glibc(arenas_in_use: in_use), garbage: Charts.garbage(garbage) }
    end
    since = diagnose(**chart.call(20, 0), ledger: { at: EARLIER, pid: 7, reasons: LEFT_OUT })

    assert_clear :in_use_growth, later(since, **chart.call(60, 40))
    assert_equal :warning, finding(later(since, **chart.call(60, 0)), :in_use_growth).severity
  end

  # YJIT's metadata is neither a C extension's nor an unknown structure of Ruby's. YJIT does not count what malloc adds
  # to its blocks.
  def test_metadata_of_a_compiler_is_not_native_memory
    chart = lambda do |untracked, metadata|
      { malloc: Charts.glibc(untracked: untracked, detail: { jit_metadata_bytes: mebibytes(metadata) }) }
    end
    since = earlier(**chart.call(4, 2))
    grown = later(since, **chart.call(62, 42))

    assert_clear :native_growth, grown
    assert_clear :native_memory, grown
    assert_includes finding(later(since, **chart.call(90, 40)), :native_memory).explanation,
                    "Ruby's just-in-time compiler holds 40.0 to 60.0 MiB more."
  end

  def test_what_stays_or_falls_is_no_growth
    since = earlier(malloc: Charts.glibc(untracked: 42))

    [42, 2].each { |untracked| assert_clear :native_growth, later(since, malloc: Charts.glibc(untracked: untracked)) }
  end

  # 80 MiB in use were never written to: 40 of them become resident, and then 12 that are allocated anew.
  def test_memory_that_becomes_resident_is_no_growth
    since = earlier(malloc: Charts.jemalloc(untracked: 90, not_resident: -80))
    grown = [0, 12].map do |amount|
      later(since, malloc: Charts.jemalloc(untracked: 90 + amount, in_use: 120 + amount, not_resident: -40))
    end
    found = finding(grown.last, :native_growth)

    assert_clear :native_growth, grown.first
    assert_equal mebibytes(12), found.affected_bytes
    assert_includes found.explanation, "In 60.0 s, it grew from 65.0 MiB to 77.0 MiB. "
  end

  def test_growth_of_objects_informs
    { 40 => :info, nil => :info, 10 => :warning }.each do |garbage, severity|
      found = finding(diagnose(malloc: Charts.glibc(arenas_in_use: 60), since: earlier,
                               ledger: { at: LATER, pid: 7, garbage_max_bytes: garbage && mebibytes(garbage) }),
                      :object_growth)

      assert_equal [severity, mebibytes(40)], [found.severity, found.affected_bytes]
      assert_equal "memscope heap --pid 7", found.remedy
    end
  end

  # 30 MiB of garbage before, 50 of it now: of the 40 MiB more that objects own, 20 are reachable.
  def test_growth_of_objects_is_that_of_reachable_ones
    before, now = [30, 50].map { |amount| Charts.garbage(amount, returned: [0, amount]) }
    found = finding(later(earlier(garbage: before), malloc: Charts.glibc(arenas_in_use: 60), garbage: now),
                    :object_growth)

    assert_equal [:warning, mebibytes(20)], [found.severity, found.affected_bytes]
    assert_equal [mebibytes(30), mebibytes(50)], found.evidence.values_at(:earlier_garbage_bytes, :garbage_bytes)
  end

  def test_growth_of_objects_names_what_is_known_of_their_holder
    { { graph_at: 1_795_000_000_000, holder: Charts.holder(40) } =>
        "In the heap graph of 2026-11-18 11:06:40 UTC, Cache @all → Hash holds 40.0 MiB, mostly in 1,200 Order.",
      { census_seconds: 61.2, grown: Charts.grown(30) } =>
        "In 61 s between the last two censuses, Order grew most, by 30.0 MiB." }.each do |objects, sentence|
      assert_includes object_growth(objects).explanation, sentence
    end
    small = { graph_at: 1, holder: Charts.holder(1), census_seconds: 61.2, grown: Charts.grown(0.5) }

    refute_match(/heap graph|censuses/, object_growth(small).explanation)
  end

  def object_growth(objects)
    finding(diagnose(malloc: Charts.glibc(arenas_in_use: 60), since: earlier, objects: objects,
                     ledger: { at: LATER, pid: 7 }), :object_growth)
  end

  # Images, contexts of V8: native memory that belongs to few objects, whose number is all that is known.
  def test_native_memory_names_objects_that_report_no_size
    few = { "Vips::Image" => [50, 90], "Store" => [1, 3] }
    objects = { census_seconds: 60.0,
                unsized: few.map { |name, (before, after)| Memscope::Diff.row(name, before: before, after: after) } }
    sentence = "Between the last two censuses came 40 Vips::Image, 2 Store: Ruby does not know how much memory such " \
               "objects hold. `memscope heap --pid 7 --paths-to CLASS` shows what keeps them."
    grown = later(earlier, malloc: Charts.glibc(untracked: 60), objects: objects)

    assert_includes finding(grown, :native_growth).explanation, sentence
    assert_includes finding(grown, :native_memory).explanation, sentence
    refute_match(/last two censuses came/, later(earlier, malloc: Charts.glibc(untracked: 60)).to_s)
    held = later(earlier, malloc: Charts.glibc(arenas_in_use: 60), objects: objects)

    refute_match(/last two censuses came/, held.to_s)
  end

  def test_what_cannot_be_compared
    reason = ->(diagnosis) { diagnosis.checked.find { |check| check.id == :native_growth }.reason }

    assert_match(/no earlier/, reason.call(diagnose))
    assert_match(/is not earlier/, reason.call(diagnose(ledger: { at: EARLIER, pid: 7 }, since: earlier)))
  end

  # A pid is reused; in another container, or after a reboot, it means another process.
  def test_another_process_is_refused
    here = Memscope.cgroup.process.to_h
    elsewhere = earlier.to_h.then do |body|
      ledger = { **body[:evidence][:ledger], process: { **here, boot_id: "another" } }
      { **body, evidence: { **body[:evidence], ledger: ledger } }
    end

    [-> { later(earlier(pid: 1)) }, -> { later(earlier(pid: 8)) }, lambda {
      later(earlier, environment: { started: 1_001 })
    },
     -> { later(Memscope::Diagnosis.from_h(elsewhere)) }].each do |comparison|
      assert_match(/\AMemscope\.doctor: since: given a diagnosis of another process \(pid [178], .*\), allowed: /,
                   assert_raises(ArgumentError, &comparison).message)
    end
  end

  def test_anything_else_is_refused
    [7, [], "no JSON", {}, { "kind" => "ledger" }, Memscope.ledger].each do |since|
      assert_raises(ArgumentError) { Memscope::Doctor.diagnose(Charts.evidence, since: since) }
    end
  end
end

# The rows sum to RSS, so that no growth is without a name.
class DoctorRowsTest < DoctorTest
  def between(before, now)
    since = diagnose(**before, ledger: { at: EARLIER, pid: 7, **before[:ledger].to_h })
    diagnose(**now, ledger: { at: LATER, pid: 7, **now[:ledger].to_h }, since: since)
  end

  def row(id, mebibytes, **detail) = { rows: [Bodies.row(id, id.name, mebibytes, **detail)] }

  def stacks(mebibytes, fibers:, threads: 3)
    children = [Bodies.row(:threads, "threads", 1, detail: { live: threads, cached: 0 }),
                Bodies.row(:fibers, "fibers", mebibytes - 1, detail: { stacks: fibers })]
    { rows: [Bodies.row(:stacks, "stacks", mebibytes, children: children)] }
  end

  def test_the_row_that_grew_is_the_first_finding
    commands = { unattributed: "report --pid 7 --mappings", shared_memory: "report --pid 7 --mappings",
                 jit: "report --pid 7", ruby_internal: "report --pid 7" }
    commands.each do |id, command|
      grown = between(row(id, 5), row(id, 105))

      assert_equal [:"#{id}_growth", :warning, mebibytes(100), "memscope #{command}"],
                   [grown.first.id, grown.first.severity, grown.first.affected_bytes, grown.first.remedy]
      assert_equal mebibytes(100), grown.changes.fetch(:rss)
      assert_match(/^  next:\n    memscope #{command}$/, grown.to_s)
      refute_match(/No problems found/, grown.to_s)
    end
  end

  def test_stacks_are_of_fibers_or_threads
    fibers = between(stacks(2, fibers: 32), stacks(118, fibers: 9_032)).first
    threads = between(stacks(2, fibers: 32), stacks(118, fibers: 32, threads: 1_503)).first

    assert_equal ["116.0 MiB more is stacks: 9,000 fibers more", "memscope heap --pid 7 --paths-to Fiber"],
                 [fibers.title, fibers.remedy]
    assert_equal ["116.0 MiB more is stacks: 1,500 threads more", "memscope heap --pid 7 --paths-to Thread"],
                 [threads.title, threads.remedy]
    assert_includes fibers.explanation, "In 60.0 s, it grew from 2.0 MiB to 118.0 MiB."
  end

  # From Ruby 3.3 on, most of a thread's memory is in malloc.
  def test_native_memory_of_threads
    before, now = [3, 103].map { |threads| stacks(2, fibers: 32, threads: threads) }
    grown = between({ **before, malloc: Charts.glibc(untracked: 2) }, { **now, malloc: Charts.glibc(untracked: 42) })

    assert_includes grown.find { |one| one.id == :native_growth }.explanation,
                    "100 threads came meanwhile, each of which holds memory in malloc: `memscope heap --pid 7 " \
                    "--paths-to Thread`."
  end

  def test_memory_that_is_kept_free
    grown = between({ malloc: Charts.glibc(main_free: 4) },
                    { malloc: Charts.glibc(main_free: 84), garbage: nil }).find { |one| one.id == :free_growth }

    assert_equal [:info, mebibytes(80), "memscope purge --pid 7 --dry-run"],
                 [grown.severity, grown.affected_bytes, grown.remedy]
  end

  # RSS is flat; what was shared with the parent is not.
  def test_shared_memory_that_becomes_private
    shared = ->(mebibytes) { { malloc: Charts.glibc(shared: mebibytes) } }
    memory = ->(uss) { { process_memory: { uss_bytes: mebibytes(uss) } } }
    grown = between({ **shared.call(110), **memory.call(40) }, { **shared.call(10), **memory.call(143) })
    found = grown.first

    assert_equal [:unshared_growth, :warning, mebibytes(103), "memscope report --pid 7 --shared"],
                 [found.id, found.severity, found.affected_bytes, found.remedy]
    assert_match(/private memory \(USS\) grew by 103\.0 MiB, RSS by 0 B: .*By row: malloc 100\.0 MiB\./,
                 found.explanation)
    refute_match(/No problems found/, grown.to_s)
    refute_includes found.explanation, "Process.warmup"
  end

  def test_the_heap_that_becomes_private_is_counted_by_class
    parts = [[40, 40], [75, 5]].map { |uss, heap| { process_memory: { uss_bytes: mebibytes(uss) }, shared_heap: heap } }
    found = between(*parts).first

    assert_equal [:unshared_growth, "memscope census --pid 7 --private"], [found.id, found.remedy]
    assert_includes found.explanation, "By row: Ruby heap 35.0 MiB."
  end

  def test_the_file_that_grew_is_named
    files = ->(sizes) { { shared_files: sizes.transform_values { |size| mebibytes(size) } } }
    grown = between({ **row(:shared_memory, 25), **files.call({ "/dev/shm/a": 5, "/dev/shm/b": 20 }) },
                    { **row(:shared_memory, 125), **files.call({ "/dev/shm/a": 100, "/dev/shm/b": 25 }) }).first

    assert_equal "100.0 MiB more is shared memory: 95.0 MiB of it in /dev/shm/a", grown.title
  end

  def test_full_gcs_make_shared_memory_private
    parts = [[40, 8], [143, 10]].map do |uss, number|
      { process_memory: { uss_bytes: mebibytes(uss) }, snapshot: { gc: { count: 40, major_gc_count: number } } }
    end

    assert_includes between(*parts).first.explanation, "2 full GCs ran meanwhile. A GC that makes an object old " \
                                                       "writes to it; `Process.warmup` before the fork,"
  end

  # Too little of the RSS for a warning; the first line says it all the same, and so does the exit status.
  def test_little_growth_is_no_warning_and_not_nothing
    grown = between({ **row(:jit, 2000) }, { **row(:jit, 2015) })

    assert_equal [:grown, :info, true, true], [grown.verdict, grown.first.severity, grown.healthy?, grown.grown?]
    assert_match(/^  In 60 s, RSS changed by \+15\.0 MiB: jit \+15\.0, private 0\.0\. RSS 2,2\d\d\.\d\s+MiB\.$/,
                 grown.to_s)
    assert_equal grown, Memscope::Diagnosis.from_json(grown.to_json)
  end

  def test_the_noise_of_the_history_is_no_growth
    steady = Histories.judge(5) { {} }
    noisy = [4, 8].map do |noise|
      Memscope::Verdict.from_h(steady.to_h.merge(evidence: { **steady.evidence, noise_bytes: mebibytes(noise) }))
    end

    grown = noisy.map { |verdict| between({ **row(:jit, 5) }, { **row(:jit, 20), verdict: verdict }).grown? }

    assert_equal [true, false], grown
  end

  # A setting that no warning names does not help where memory grows.
  def test_the_next_command_is_about_what_has_grown
    setting = { problems: { too_many_arenas: { severity: :info, replacement: "MALLOC_ARENA_MAX=2" } } }
    jit = between({ **row(:jit, 2000), **setting }, { **row(:jit, 2015), **setting })
    unnamed = between({ **row(:other, 2000), **setting }, { **row(:other, 2015), **setting })

    assert_equal [%i[jit_growth too_many_arenas], "memscope report --pid 7"], [jit.map(&:id), jit.next_command]
    assert_equal [%i[too_many_arenas], true, nil], [unnamed.map(&:id), unnamed.grown?, unnamed.next_command]
    assert_equal jit.next_command, Memscope::Diagnosis.from_json(jit.to_json).next_command
  end

  def test_what_changes_by_less_than_ten_mebibytes_is_nothing
    same = between(row(:jit, 20), row(:jit, 29))

    assert_equal [:none, true, []], [same.verdict, same.healthy?, same.map(&:id)]
    assert_nil diagnose.changes
  end
end

class DiagnosisTest < DoctorTest
  def sick
    @sick ||= diagnose(malloc: jemalloc(slab_slack: 64, dirty: 100),
                       arenas: [{ dirty_bytes: mebibytes(100), dirty_decay_ms: -1 }],
                       cgroup: { limit_bytes: mebibytes(310) })
  end

  def test_the_worst_and_most_costly_first
    assert_equal %i[near_limit dirty_pages slab_slack], sick.map(&:id)
    assert_equal [:critical, false], [sick.severity, sick.healthy?]
  end

  def test_json_and_back
    diagnosis = Memscope::Diagnosis.from_h(JSON.parse(sick.to_json))

    assert_equal sick, diagnosis
    assert_equal ["diagnosis", 1], JSON.parse(sick.to_json).values_at("kind", "schema")
    assert_predicate diagnosis, :frozen?
    assert_equal 3, diagnosis.count
  end

  def test_text
    text = sick.to_s

    assert_match(/^  1 critical and 2 warnings\. RSS 349\.0 MiB; 100\.0 MiB can be released now\./, text)
    assert_match(/^  CRITICAL 300\.0 MiB of the container's/, text)
    assert_match(/^  WARNING  jemalloc keeps 100\.0 MiB of freed pages/, text)
    assert_match(/^           > memscope purge --pid \d+ purge$/, text)
    assert_match(/^           > Memscope\.tune\(background_thread: true\)$/, text)
    assert_match(/^           Up to 10\.0 MiB of what is in use may be garbage\. A collection/, text)
  end

  # The doctor says "No problems found" only if nothing is unknown.
  # In the text, and beside the check on the page and in JSON.
  def test_the_reason_of_a_check_that_could_not_be_made
    why = "objects cannot be walked while other Ractors are alive"
    diagnosis = diagnose(ledger: { held_by_objects_bytes: nil, reasons: { objects: why } },
                         process_memory: { swap_bytes: nil, reasons: { swap_bytes: "hidden by the kernel" } },
                         cgroup: { limit_bytes: nil, reasons: { limit_bytes: "unlimited" } })
    unknown = diagnosis.checked.select { |check| check.outcome == :unknown }

    assert_includes unknown.map(&:id), :native_memory
    assert_equal ["#{why}; hidden by the kernel"], unknown.map(&:reason).uniq
    assert_match(/Could not be checked: .* #{why}; hidden by the kernel/, diagnosis.to_s.gsub(/\s+/, " "))
  end

  def test_the_verdict
    garbage = { ledger: { garbage_max_bytes: mebibytes(192) } }
    unknown = { process_memory: { swap_bytes: nil } }

    { {} => [:none, true, "No problems found. RSS 188.0 MiB."],
      garbage => [:incomplete, nil, /No problems found by \d+ checks; 1 could not be made/],
      { **garbage, snapshot: Charts.overdue } =>
        [:garbage, nil, "No verdict yet: up to 192.0 MiB of what is in use may be garbage. RSS 188.0 MiB."],
      unknown => [:incomplete, nil, /No problems found by \d+ checks; 1 could not be made/] }
      .each do |chart, (verdict, healthy, text)|
        diagnosis = diagnose(**chart)

        assert_equal [verdict, healthy.inspect], [diagnosis.verdict, diagnosis.healthy?.inspect]
        assert_match text, diagnosis.to_s.gsub(/\s+/, " ")
        refute_match(/No problems found\./, diagnosis.to_s) unless healthy
      end
  end

  def test_after_a_collection
    collected = { pause_us: 40_000, returned_bytes: mebibytes(30), unshared_bytes: mebibytes(5) }

    assert_includes diagnose(ledger: { collected: collected }).to_s,
                    "Garbage was collected first, in 40 ms; RSS fell by 30.0 MiB; 5.0 MiB is no"
    assert_includes diagnose(ledger: { collected: { **collected, returned_bytes: 0 } }).to_s, "; RSS did not change; 5"
    refute_match(/no longer shared/, diagnose(ledger: { collected: { **collected, unshared_bytes: 4_096 } }).to_s)
  end

  def test_the_first_line_says_what_goes_back
    slack = diagnose(malloc: jemalloc(slab_slack: 64, in_use: 16))
    both = diagnose(malloc: jemalloc(slab_slack: 64, in_use: 16, dirty: 200))

    assert_match(/^  1 warning\. RSS [\d.]+ MiB\.$/, slack.to_s)
    assert_match(/^  1 warning\. RSS [\d.]+ MiB; 200\.0 MiB can be released now\.$/, both.to_s)
  end

  # A trim or purge after a collection returns what is free already, too; a compaction, other pages or the same.
  def test_the_first_line_counts_free_memory_once
    garbage = Charts.garbage(40, returned: [115, 120])
    dirty = { malloc: jemalloc(dirty: 100), arenas: [{ dirty_bytes: mebibytes(100), dirty_decay_ms: -1 }] }
    sparse = { ruby: "3.3.1", compactable_bytes: mebibytes(30), compactable_min_bytes: mebibytes(30),
               live_slots: 100_000, old_objects: 100_000 }

    { {} => /; 81\.0 MiB can be/, { garbage: garbage } => /; 115\.0 to 120\.0 MiB can be/,
      { garbage: garbage, ruby_heap: sparse } => /; 115\.0 to 150\.0 MiB can be/,
      { garbage: garbage, **dirty } => /; 115\.0 to 120\.0 MiB can be/ }.each do |chart, amount|
      assert_match amount, diagnose(malloc: Charts.glibc(main_free: 90, main_trimmable: 80), **chart).to_s
    end
  end

  def test_of_this_process
    diagnosis = Memscope.doctor

    assert_equal Process.pid, diagnosis.pid
    assert_operator diagnosis.cost.wall_us, :positive?
    assert_equal diagnosis, Memscope::Diagnosis.from_json(diagnosis.to_json)
    assert_equal Process.ppid, diagnosis.evidence.lint.environment.parent_pid
    assert_empty diagnosis.evidence.lint.environment.variables.keys - %i[LD_PRELOAD DYNO]
  end

  # A supervisor may set LD_PRELOAD for the programs that it starts, without having been started with it.
  def test_a_preload_for_children_is_none_of_this_process
    skip_under_sanitizer # which has to be preloaded in the children too
    preloads = ChildProcess.run(<<~RUBY, requires: %w[json rbconfig memscope]).json
      read = -> { Memscope.lint.environment.variables[:LD_PRELOAD].to_s }
      ENV["LD_PRELOAD"] = "/opt/libjemalloc.so.2"
      before = read.call
      script = "print(Memscope.lint.environment.variables[:LD_PRELOAD])"
      path = $LOAD_PATH.map { |directory| "-I\#{directory}" }
      started = IO.popen([RbConfig.ruby, *path, "-rmemscope", "-e", script], &:read)
      puts JSON.generate([before.include?("/opt"), started.include?("/opt")])
    RUBY

    assert_equal [false, true], preloads
  end
end
