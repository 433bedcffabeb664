# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/diagnosed"
require_relative "../../../support/histories"

# The rules of growth: by the process's history, and since an earlier diagnosis.
class DoctorGrowthRulesTest < MemscopeTest
  include Diagnosed

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
                      ruby_heap: { live_slots: 327_680 })
    first = finding(diagnose(malloc: Charts.glibc(untracked: 42)), :native_memory)

    assert_match(/Tracing takes up to 30\.0 MiB of it\./, finding(traced, :native_memory).explanation)
    assert_match(/Read again in a few minutes/, first.explanation)
    read = Memscope::Diagnosis.from_json(since.to_json)

    assert_equal grown.findings, later(read, malloc: Charts.glibc(untracked: 42)).findings
  end

  # The tables of the records count as an object's, so that all of the tracing can be more.
  def test_tracing_takes_no_more_than_the_native_memory
    traced = diagnose(malloc: Charts.glibc(untracked: 42), environment: { allocation_tracing: true },
                      ruby_heap: { live_slots: 655_360 })

    assert_match(/Tracing takes up to 42\.0 MiB of it\./, finding(traced, :native_memory).explanation)
    assert_equal mebibytes(60), finding(traced, :allocation_tracing).affected_bytes
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

  def test_what_stays_or_falls_is_no_growth
    since = earlier(malloc: Charts.glibc(untracked: 42))

    [42, 2].each { |untracked| assert_clear :native_growth, later(since, malloc: Charts.glibc(untracked: untracked)) }
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

  def test_what_cannot_be_compared
    reason = ->(diagnosis) { diagnosis.checked.find { |check| check.id == :native_growth }.reason }

    assert_match(/no earlier/, reason.call(diagnose))
    assert_match(/is not earlier/, reason.call(diagnose(ledger: { at: EARLIER, pid: 7 }, since: earlier)))
  end
end

# The rules of the ledger's rows, which sum to RSS, so that no growth is without a name.
class DoctorRowsRulesTest < MemscopeTest
  include Diagnosed

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

  # That a loaded library names mmap does not prove that it mapped the memory.
  def test_a_library_may_map_what_no_allocator_owns
    [nil, %w[v8.so gpu.so]].each do |libraries|
      text = between(row(:unattributed, 5), { **row(:unattributed, 105), mappers: libraries }).first.explanation

      assert_includes text, "A library may map it by itself, as V8 and other engines do."
      assert_equal !libraries.nil?, text.include?(" These loaded libraries call mmap: v8.so, gpu.so.")
    end
  end

  # Of 100 MiB; a library of its own maps the rest, if it is much.
  def test_malloc_of_the_c_library_beside_jemalloc
    called, both = [98, 60].map do |more|
      details = [1, more + 1].map { |mebibytes| { mappings: [], c_library_bytes: mebibytes(mebibytes) } }
      between(row(:unattributed, 5, detail: details[0]), row(:unattributed, 105, detail: details[1])).first
    end

    assert_equal [:unattributed_growth, "100.0 MiB more is malloc of the C library beside jemalloc"],
                 [called.id, called.title]
    assert_match(/98\.0 MiB of it is malloc of the C library: .* as through FFI.* No profile of jemalloc or of import /,
                 called.explanation)
    refute_includes called.explanation, "map it by itself"
    assert_match(/60\.0 MiB of it is malloc of the C library: .* may map the rest by itself/, both.explanation)
    assert_equal "100.0 MiB more is memory that no allocator owns", both.title
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
                    "In this time, 100 threads were created, each of which holds memory in malloc: `memscope heap " \
                    "--pid 7 --paths-to Thread`."
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

    assert_includes between(*parts).first.explanation, "In this time, 2 full GCs ran. A GC that makes an object old " \
                                                       "writes to it. `Process.warmup` before the fork,"
  end

  def test_a_compaction_makes_shared_memory_private
    parts = [[40, 0], [143, 1]].map do |uss, number|
      { process_memory: { uss_bytes: mebibytes(uss) }, snapshot: { gc: { major_gc_count: 8, compact_count: number } } }
    end

    assert_includes between(*parts).first.explanation, "In this time, 1 compaction ran. A compaction moves objects"
  end
end
