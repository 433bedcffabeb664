# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/diagnosed"

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
    refute_includes called.explanation, "maps it by itself"
    assert_match(/60\.0 MiB of it is malloc of the C library: .* maps the rest by itself/, both.explanation)
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

  def test_a_compaction_makes_shared_memory_private
    parts = [[40, 0], [143, 1]].map do |uss, number|
      { process_memory: { uss_bytes: mebibytes(uss) }, snapshot: { gc: { major_gc_count: 8, compact_count: number } } }
    end

    assert_includes between(*parts).first.explanation, "1 compaction ran meanwhile. A compaction moves objects"
  end
end
