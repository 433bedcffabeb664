# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Bytes. If at least this much memory may be garbage, it matters how much of it is garbage.
      MUCH = 192 * MEBIBYTE
      # The lever that returns malloc's free memory.
      RETURNS = { glibc: :trim, jemalloc: :purge }.freeze

      # The memory that the garbage collector and its heap keep, and the memory that Ruby does not account for.
      rule(:too_small, :rss_bytes) { |bytes| { severity: :info, remedy: nil } if bytes < 2 * FLOOR }

      rule(:possible_garbage, :bounded_garbage_bytes, floor: 2 * FLOOR, ratio: 0.10) do
        gain = garbage&.gain(forked: environment.forked? || false)
        least = gain ? gain.begin : 0
        much = [[0.45 * rss_bytes.to_i, 2 * FLOOR, gc_room], [MUCH, 2 * gc_room]]
               .any? { |amounts| reaches?(least, amounts.max) }
        { severity: much ? :warning : :info, confidence: garbage ? :certain : :likely,
          title: garbage ? :title_known : :title, why: [garbage ? :why_known : :why, :grown, next_full],
          returns: gain || :returns, remedy: [[*(collect unless garbage), :remedy], :cost],
          figures: { objects: garbage&.objects, time: predicted_pause(:gc),
                     levers: ["gc", *(RETURNS[allocator.name] if garbage)].join(" ") } }
      end

      rule(:collector_off) do
        called, call = collector_off
        next unless called

        # Garbage or, if that was just collected, the free memory where it was.
        left = ledger.collected ? free_bytes : garbage_bytes
        { title: ruby_heap.gc_disabled? ? :title_disabled : :title, why: [:why, unjudged],
          severity: reaches?(left, 2 * FLOOR) ? :warning : :info, figures: { called: called, call: call } }
      end

      rule(:allocation_tracing, :traced_bytes, floor: FLOOR, ratio: 0.05) { { confidence: :likely } }

      # Besides the pages that compaction empties, those that Ruby keeps empty, but no empty_heap_pages.
      rule(:compactable_heap, lambda do
        compactable = ruby_heap.compactable_bytes
        compactable && ([compactable - (hidden_empty_bytes || 0), 0].max + ruby_heap.empty_bytes)
      end, floor: FLOOR, ratio: 0.10) do
        next unless reaches?(1 - ruby_heap.occupancy, 0.5) # the GC's own goal is 40 % free slots

        refusal = RubyHeap.compaction_refusal(ruby_heap.ruby)
        empty = returned_empty_bytes.to_i
        range = forecast.range&.minmax&.map { |most| [most - empty, 0].max }
        unknown = refusal ? :refused : :unpredicted
        { confidence: :likely, returns: range ? gained(:ruby_heap, range[0]..range[1]) : unknown,
          remedy: (%i[remedy cost] unless refusal),
          figures: { refusal: refusal, reason: forecast.reason, occupancy: ruby_heap.occupancy,
                     slots: ruby_heap.slots, pages: ruby_heap.pages, time: predicted_pause(:compact) } }
      end

      # Of the pages that are counted, only those that variables keep.
      rule(:empty_heap_pages, -> { hidden_empty_bytes&.+(page_keepers.any? ? ruby_heap.empty_bytes : 0) },
           floor: FLOOR, ratio: 0.10) do
        names = page_keepers
        kept = names.one? ? :kept_by_one : :kept_by_some if names.any?
        forked = environment.forked?
        collect = [:remedy, forked ? :cost_forked : :cost]
        collect = %i[remedy_before_warmup cost_before_warmup] if ledger.ruby.start_with?("3.1.", "3.2.")
        unset = [names.map { |text| "unset #{text[/\A\w+/]}" }, :restart]
        { title: kept ? :title_kept : :title, why: [:why, kept], confidence: :likely,
          severity: kept || forked || returned_empty_bytes < FLOOR ? :info : :warning,
          returns: kept || gained(:ruby_heap, returned_empty_bytes),
          remedy: kept ? unset : (collect unless returned_empty_bytes.zero?),
          figures: { variables: names.join(" and ") } }
      end

      rule(:native_memory, :untracked_bytes, floor: FLOOR, ratio: 0.15) do |bytes|
        traced = [traced_bytes, bytes].min # the tables of these records are an object's
        { severity: :info,
          why: [:may_be, (:sizes if unsized_reason), (:compiler if jit_bytes.end >= MEBIBYTE),
                (:tracing if traced >= FLOOR), unsized, unjudged, (:collect if collect), (:again if incomparable)],
          remedy: collect ? [collect, nil] : %i[profile profile_cost],
          figures: { compiled: between(*jit_bytes.minmax), traced_bytes: traced } }
      end

      # A program may need as many fibers or threads as it has.
      rule(:stacks, -> { row_bytes(:stacks).to_i if ledger.rss_bytes && !ledger.reasons.key?(:threads) },
           floor: FLOOR, ratio: 0.15) do
        fibers, threads = %i[fibers threads].map { |row| row_bytes(:stacks, row).to_i }
        type = fibers > threads ? "Fiber" : "Thread"
        { severity: :info, why: [text(:why, of: :stacks_growth), (:again if incomparable)],
          remedy: [text(:remedy, of: :stacks_growth, type: type), nil],
          figures: { fiber_bytes: fibers, thread_bytes: threads } }
      end
    end
  end
end
