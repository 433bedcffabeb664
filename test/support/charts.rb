# frozen_string_literal: true

require_relative "bodies"

# Evidence for the doctor, made by hand: a healthy process of 200 MiB, and the differences that a test states.
module Charts
  MEBIBYTE = Bodies::MEBIBYTE

  module_function

  # Differences that are amounts of memory are in MiB.
  def evidence(malloc: glibc, **differences)
    differences = { snapshot: {}, ruby_heap: {}, process_memory: {}, cgroup: {}, environment: {}, **differences }
    Memscope::Diagnosis::Evidence.capture(
      { ledger: ledger(malloc, differences), snapshot: reading(:Snapshot, snapshot(malloc), differences[:snapshot]),
        second_snapshot: second_snapshot(malloc, differences), arenas: differences[:arenas],
        ruby_heap: reading(:RubyHeap, ruby_heap, { ruby: "3.1.2", **differences[:ruby_heap] }),
        process_memory: reading(:ProcessMemory, process_memory, differences[:process_memory]),
        cgroup: reading(:Cgroup, cgroup, differences[:cgroup]),
        objects: differences[:objects], garbage: differences[:garbage], mappers: differences[:mappers],
        shared_files: differences[:shared_files], verdict: differences[:verdict],
        gc_pause_ms: 120.0,
        lint: lint(malloc[:name], differences[:problems] || [], differences[:environment]),
        total_cost: Bodies.cost }
    )
  end

  # Resident MiB of malloc's rows under glibc. Other processes also map `shared` of them, and all but
  # `trimmable_private` of the trimmable memory. `kept` is free, but the kernel does not take it back.
  def glibc(untracked: 2, arenas: 3, arenas_in_use: 20, shared: 0, kept: 0, trimmable_private: nil, detail: {}, **given)
    free = { main_free: 4, main_trimmable: 2, arenas_free: 4, arenas_trimmable: 1, **given }
    main = heap(:main_heap, 100, free[:main_free], free[:main_trimmable], kept: kept)
    others = heap(:arenas, arenas_in_use, free[:arenas_free], free[:arenas_trimmable], arenas: arenas)
    trimmable = free[:main_trimmable] + free[:arenas_trimmable]
    locked = kept.zero? ? {} : { locked_bytes: 110 * MEBIBYTE }
    { name: :glibc, rows: [main, others], in_use: 100 + arenas_in_use, untracked: untracked, shared: shared,
      detail: { trimmable_bytes: trimmable * MEBIBYTE, **locked,
                trimmable_private_bytes: (trimmable_private || trimmable) * MEBIBYTE, **detail } }
  end

  # The same under jemalloc.
  def jemalloc(untracked: 2, dirty_npurge: 7, background_threads: 0, tcache: 1, shared: 0, detail: {}, **given)
    mebibytes = { in_use: 120, slab_slack: 5, dirty: 5, muzzy: 0, metadata: 5, retained_resident: 0, **given }
    { name: :jemalloc, rows: mebibytes.map { |id, amount| Bodies.row(id, id.name, amount) }, in_use: mebibytes[:in_use],
      untracked: untracked, shared: shared, detail: detail,
      totals: { pdirty: mebibytes[:dirty] * 256, page_bytes: 4_096, background_threads: background_threads,
                dirty_npurge: dirty_npurge, dirty_purged: 100, tcache_bytes: tcache * MEBIBYTE } }
  end

  def heap(id, in_use, free, trimmable, kept: 0, **detail)
    pages = { trimmable_bytes: trimmable * MEBIBYTE, kept_by_kernel_bytes: kept * MEBIBYTE }
    children = [Bodies.row(:in_use, "in use", in_use), Bodies.row(:thread_caches, "thread caches", 0),
                Bodies.row(:free, "free", free, detail: pages),
                Bodies.row(:top, "top", 0)]
    Bodies.row(id, id.name, in_use + free, children: children, detail: detail)
  end

  def ledger(malloc, differences)
    in_use = malloc[:in_use] * MEBIBYTE
    untracked = malloc[:untracked] * MEBIBYTE
    detail = { in_use_bytes: in_use, held_by_objects_bytes: in_use - untracked, **malloc[:detail] }
    size = malloc[:rows].sum { |row| row[:bytes] }.fdiv(MEBIBYTE)
    sharing = { shared_bytes: malloc[:shared] * MEBIBYTE, private_bytes: ((size - malloc[:shared]) * MEBIBYTE).to_i }
    rows = [Bodies.row(:malloc, "malloc", size, detail: detail, children: malloc[:rows], **sharing),
            heap_row(differences[:shared_heap]),
            Bodies.row(:files, "files", 20), *differences[:rows]]
    body = Bodies.ledger(rows: rows, allocator: allocator(malloc[:name], differences[:allocator]),
                         held_by_objects_bytes: in_use - untracked, garbage_max_bytes: 10 * MEBIBYTE)
    reading(:Ledger, body, differences.fetch(:ledger, {}))
  end

  # Other processes also map `shared` MiB of it, if that is known.
  def heap_row(shared)
    sharing = shared ? { shared_bytes: shared * MEBIBYTE, private_bytes: (40 - shared) * MEBIBYTE } : {}
    Bodies.row(:ruby_heap, "Ruby heap", 40, children: [Bodies.row(:live_slots, "live slots", 36),
                                                       Bodies.row(:free_slots, "free slots", 4)], **sharing)
  end

  def allocator(name, differences)
    settings = { glibc: {}, jemalloc: { narenas: 8, background_thread: false, dirty_decay_ms: 10_000,
                                        muzzy_decay_ms: 0, prof: false, thp: "default" } }.fetch(name)
    body = Bodies.allocator(name: name, settings: settings.map { |key, value| setting(key, value) })
    differences ||= {}
    changed = differences.fetch(:settings, {}).map { |key, value| setting(key, value) }
    { **body, **differences, settings: body[:settings] + changed }
  end

  def setting(name, value, **given)
    { name: name.name, value: value, source: "MALLOC_CONF", given: nil, ignored: nil, **given }
  end

  def lint(allocator, problems, differences)
    environment = { cpus: 2, ractors: 1, threads: 6, forked: false, forks: false, parent_pid: 1, started: 1_000,
                    cpu_seconds: 0.2, variables: {}, thp_mode: "madvise", thp_gaps: 511, **differences }
    problems = problems.map { |id, given| { id: id, severity: :warning, text: id.name, **given } }
    Memscope::Lint.capture({ allocator: allocator, environment: environment, settings: [], recommendations: [],
                             tuning: "Memscope.tune(background_thread: true)", problems: problems, reasons: {},
                             cost: Bodies.cost })
  end

  # @param mebibytes [Numeric] size of the garbage
  # @param returned [Array(Numeric, Numeric)] bounds of the MiB that a collection and a trim return
  # @return [Hash] the body of a Diagnosis::Garbage
  def garbage(mebibytes, returned: [0, 0])
    least, most = returned.map { |amount| amount * MEBIBYTE }
    { objects: 1_000, bytes: mebibytes * MEBIBYTE, returned: { bytes: least, max_bytes: most },
      collected: { bytes: 0, max_bytes: 0 } }
  end

  # @return [Hash] the body of the HeapGraph::Path "Cache @all → Hash"
  def holder(mebibytes)
    { count: 1, retained_bytes: mebibytes * MEBIBYTE, accumulated_bytes: mebibytes * MEBIBYTE, held_class: "Order",
      held_count: 1_200, steps_left_out: 0,
      steps: [{ name: "Cache", times: 1, edge: :internal }, { name: "Hash", times: 1, edge: :ivar, by: "@all" }] }
  end

  # @return [Hash] the body of a Diff::Row of a class that grew
  def grown(mebibytes) = Memscope::Diff.row("Order", before: 0, after: mebibytes * MEBIBYTE)

  def snapshot(malloc)
    { rss_bytes: 0, virtual_bytes: 0, shared_bytes: 0, gc_heaps: nil, glibc: nil, jemalloc: malloc[:totals],
      gc: { malloc_increase_bytes_limit: 16 * MEBIBYTE, oldmalloc_increase_bytes_limit: 16 * MEBIBYTE,
            oldmalloc_increase_bytes: 5 * MEBIBYTE, count: 40, major_gc_count: 8 },
      reasons: {}, cost: Bodies.cost }
  end

  # Of a process that should have collected its garbage.
  def overdue = { gc: { **snapshot(glibc)[:gc], oldmalloc_increase_bytes: 65 * MEBIBYTE } }

  def second_snapshot(malloc, differences)
    later = differences[:later]
    reading(:Snapshot, snapshot({ totals: { **malloc[:totals], **later } }), {}) if later
  end

  def ruby_heap
    size = { slot_size: 40, pages: 2_560, slots: 1_000_000, live_slots: 900_000, free_slots: 100_000 }
    { page_bytes: 16_384, pages: 2_560, empty_pages: 0, slots: 1_000_000, live_slots: 900_000,
      free_slots: 100_000, compactable_bytes: 4 * MEBIBYTE, compactable_min_bytes: 3 * MEBIBYTE, hidden_empty_pages: 0,
      pinned_pages_min: 10, pinned_pages_max: 20, old_objects: 900_000, allocatable_pages: 0,
      free_slots_max_ratio: 0.65, free_slots_floor: 10_000, collected: true, slot_sizes: [size], gc_state: "none",
      reasons: {}, cost: Bodies.cost }
  end

  def process_memory
    { rss_bytes: 200 * MEBIBYTE, uss_bytes: 150 * MEBIBYTE, shared_clean_bytes: 50 * MEBIBYTE, shared_dirty_bytes: 0,
      anonymous_huge_bytes: 0, swap_bytes: 0, threads: 6, thp_enabled: false, reasons: {}, cost: Bodies.cost }
  end

  def cgroup
    { version: :v2, limit_bytes: nil, working_set_bytes: 300 * MEBIBYTE, events: { oom_kill: 0 },
      reasons: {}, cost: Bodies.cost }
  end

  def reading(name, body, differences)
    envelope = differences.slice(:pid, :at, :ruby)
    reading = Memscope.const_get(name).capture({ **body, **differences.except(*envelope.keys) })
    envelope.empty? ? reading : Memscope.const_get(name).from_h({ **reading.to_h, **envelope })
  end
end
