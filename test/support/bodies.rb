# frozen_string_literal: true

# Bodies as the extension builds them, made by hand: for tests of value objects and surfaces in cases that no real
# process shows.
module Bodies
  MEBIBYTE = 1_048_576

  module_function

  def cost(**given) = { tier: :T2, wall_us: 24_100, gvl_us: 740, scratch_bytes: 385_024, **given }

  def allocator(**given)
    { name: :glibc, version: "2.36", path: "/usr/lib/x86_64-linux-gnu/libc.so.6", proved: true,
      proof: "malloc is defined in libc.so.6, and it moved mallinfo2", settings: [], others: [], reasons: {},
      cost: cost(tier: :T0), **given }
  end

  def row(id, label, mebibytes, children: [], **given)
    { id: id, label: label, bytes: (mebibytes * MEBIBYTE).to_i, detail: {}, check: nil, children: children, **given }
  end

  # The sum of the rows is rss_bytes, unless rss_bytes is given.
  def ledger(rows: storm_rows, **given)
    rss_bytes = rows.sum { |row| row[:bytes] }
    { rss_bytes: rss_bytes, source: :pagemap_scan, statm_before_bytes: rss_bytes, statm_after_bytes: rss_bytes,
      rows: rows, reasons: {}, cost: cost, allocator: allocator, **given }
  end

  # What a trim returned, as a Purge::Result. MiB before and after.
  def purge(before: 100, after: 60, **given)
    ledgers = [before, after].map do |mebibytes|
      Memscope::Ledger.capture(ledger(rows: [row(:malloc, "malloc", mebibytes)]))
    end
    lever = { name: :trim, predicted_bytes: 41 * MEBIBYTE, predicted_max_bytes: 42 * MEBIBYTE,
              returned_bytes: 40 * MEBIBYTE, rows: { malloc: 40 * MEBIBYTE }, wall_ms: 1.5, gvl: false,
              reason: "it is a range" }
    Memscope::Purge::Result.capture(
      { allocator: :glibc, dry_run: false, levers: [lever], left_out: {},
        returned_bytes: (before - after) * MEBIBYTE,
        rows: { malloc: (before - after) * MEBIBYTE },
        before: ledgers[0], after: ledgers[1], reasons: {}, cost: cost(tier: :T3), **given }
    )
  end

  # A process that allocated a million strings and freed most of them.
  def storm_rows
    [row(:ruby_heap, "Ruby heap", 40.5, detail: { pages: 2596 }, children: ruby_heap_rows),
     row(:malloc, "malloc (glibc)", 783.5, check: check(2_097_152, 2_097_152), children: malloc_rows),
     row(:stacks, "stacks", 0),
     row(:ruby_internal, "Ruby internals", 4.25, detail: { transient_heap_bytes: 4_299_162 }),
     row(:files, "files", 2.875, detail: { text_bytes: 2_936_012 }, children: [row(:ruby, "ruby", 2.875)]),
     row(:unattributed, "unattributed", 0, detail: { mappings: [] })]
  end

  def ruby_heap_rows
    [row(:free_slots, "free slots", 39.125), row(:live_slots, "live slots", 1.375), row(:empty_pages, "empty pages", 0)]
  end

  def malloc_rows
    [row(:main_heap, "main heap", 765.5,
         children: [row(:in_use, "in use", 25.5, detail: { blocks: 45_649 }), row(:free, "free", 739.75),
                    row(:thread_caches, "thread caches", 0.25)]),
     row(:arenas, "15 arenas", 16.5, detail: { arenas: 15 }), row(:mmapped, "mmapped", 1.5, detail: { blocks: 2 })]
  end

  def check(expected, actual)
    { source: "mallinfo2 hblkhd", expected_bytes: expected, actual_bytes: actual, verified: expected == actual }
  end
end
