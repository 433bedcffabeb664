# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Bytes. If at least this much memory may be garbage, it matters how much of it is garbage.
      MUCH = 192 * MEBIBYTE
      # The lever that returns malloc's free memory.
      RETURNS = { glibc: :trim, jemalloc: :purge }.freeze

      # What the garbage collector and its heap keep, and the memory that Ruby does not account for.
      rule(:too_small, "a process too small to judge", :rss_bytes) do |bytes|
        next if bytes >= 2 * FLOOR

        { title: "#{size(bytes)} is too little to judge", severity: :info,
          returns: "There is nothing to return.",
          why: "Ruby without a program is about as large. Run the doctor again after some work." }
      end

      rule(:possible_garbage, "garbage that counts as in use", :bounded_garbage_bytes,
           floor: 2 * FLOOR, ratio: 0.10) do |bytes|
        grown = unjudged_increase_bytes
        gain = garbage&.gain(forked: environment.forked? || false)
        least = gain ? gain.begin : 0
        much = [[0.45 * rss_bytes.to_i, 2 * FLOOR, gc_room], [MUCH, 2 * gc_room]]
               .any? { |amounts| reaches?(least, amounts.max) }
        title = "up to #{size(bytes)} of what is in use may be garbage"
        title = "#{size(bytes)} is garbage that Ruby has not collected" if garbage
        unreachable = "#{count(garbage.objects)} objects are no longer reachable." if garbage
        { title: title, severity: much ? :warning : :info,
          confidence: garbage ? :certain : :likely,
          why: [unreachable || "The program may no longer use some of what counts as in use.",
                "malloc has grown by #{size(grown)} since the last full garbage collection.",
                next_full],
          returns: gain || "Only a collection shows how much of it is garbage.",
          remedy: [[*(collect unless garbage),
                    command("purge", "gc", *(RETURNS[allocator.name] if garbage))].join("\n"),
                   "takes a full GC, about " \
                   "#{milliseconds(ruby_heap.live_slots / 10)}, while no Ruby code " \
                   "runs; a forked worker loses pages that it shared with its " \
                   "parent"] }
      end

      rule(:collector_off, "a garbage collector that is switched off") do
        called, remedy = collector_off
        next unless called

        # Garbage or, if that was just collected, the free memory where it was.
        left = ledger.collected ? free_bytes : garbage_bytes
        disabled = "the GC is disabled: nothing is collected"
        { title: ruby_heap.gc_disabled? ? disabled : "no old object is collected",
          severity: reaches?(left, 2 * FLOOR) ? :warning : :info,
          why: ["The program has called #{called}.", unjudged],
          returns: "What is garbage stays until the collector runs.",
          remedy: ["#{remedy} # in the program",
                   "takes effect at once; only an ensure clause does so after an exception too"] }
      end

      rule(:allocation_tracing, "tracing of allocations", :traced_bytes,
           floor: FLOOR, ratio: 0.05) do |bytes|
        { title: "up to #{size(bytes)} is records of where each object was allocated",
          why: "ObjectSpace.trace_object_allocations is on, which slows every allocation as well.",
          confidence: :likely, returns: "Only the program can end the tracing.",
          remedy: ["ObjectSpace.trace_object_allocations_stop # in the program\n" \
                   "ObjectSpace.trace_object_allocations_clear", "takes effect at once"] }
      end

      # Besides the pages that compaction empties, those that Ruby keeps empty, but no empty_heap_pages.
      rule(:compactable_heap, "a sparse Ruby heap", lambda do
        compactable = ruby_heap.compactable_bytes
        compactable && ([compactable - (hidden_empty_bytes || 0), 0].max + ruby_heap.empty_bytes)
      end, floor: FLOOR, ratio: 0.10) do |bytes|
        next unless reaches?(1 - ruby_heap.occupancy, 0.5) # the GC's own goal is 40 % free slots

        refusal = RubyHeap.compaction_refusal(ruby_heap.ruby)
        empty = returned_empty_bytes.to_i
        range = forecast.range&.minmax&.map { |most| [most - empty, 0].max }
        unknown = refusal || "What compaction returns cannot be predicted: #{forecast.reason}"
        time = milliseconds(ruby_heap.live_slots + (ruby_heap.slots / 10))
        time = "takes about #{time}, while no Ruby code runs"
        { title: "up to #{size(bytes)} of Ruby's heap is pages with few or no objects",
          confidence: :likely,
          why: "#{percent(ruby_heap.occupancy)} of #{count(ruby_heap.slots)} slots " \
               "are in use, on #{count(ruby_heap.pages)} pages.",
          returns: range ? gained(:ruby_heap, range[0]..range[1]) : "#{unknown}.",
          remedy: ([command("purge", "compact"), time] unless refusal) }
      end

      # Of the pages that are counted, only those that variables keep.
      rule(:empty_heap_pages, "empty pages that GC.stat hides",
           -> { hidden_empty_bytes&.+(page_keepers.any? ? ruby_heap.empty_bytes : 0) },
           floor: FLOOR, ratio: 0.10) do |bytes|
        names = page_keepers
        kept = "#{names.join(' and ')} #{names.one? ? 'keeps' : 'keep'} these pages." if names.any?
        old = %w[3.1. 3.2.].any? { |series| ledger.ruby.start_with?(series) }
        collect = ["#{old ? '8.times { GC.start }' : 'Process.warmup'} # in the program",
                   "takes #{old ? 'full GCs' : 'a full GC and a compaction'}, while no Ruby code runs"]
        unset = [names.map { |text| "unset #{text[/\A\w+/]}" }.join("\n"), RESTART]
        { title: "#{size(bytes)} of Ruby's heap is empty " \
                 "pages#{' that GC.stat hides' unless kept}",
          severity: kept || returned_empty_bytes < FLOOR ? :info : :warning, confidence: :likely,
          why: ["These pages hold no object, but Ruby keeps them.", kept],
          returns: kept || gained(:ruby_heap, returned_empty_bytes),
          remedy: kept ? unset : (collect unless returned_empty_bytes.zero?) }
      end

      rule(:native_memory, "memory in use in malloc that no Ruby object accounts for",
           :untracked_bytes, floor: FLOOR, ratio: 0.15) do |bytes|
        jit = "Ruby's just-in-time compiler holds #{between(*jit_bytes.minmax)} more."
        { title: "up to #{size(bytes)} in use in malloc is native: no Ruby object accounts for it",
          severity: :info, returns: "The memory is in use.",
          why: [MAY_BE,
                ("The sizes of objects: #{unsized_reason}." if unsized_reason),
                (jit if jit_bytes.end >= MEBIBYTE),
                ("Tracing takes up to #{size(traced_bytes)} of it." if traced_bytes >= FLOOR),
                unsized, unjudged, ("Collect garbage first." if collect),
                ("Read again in a few minutes to see whether it grows." if incomparable)],
          remedy: collect ? [collect, nil] : profile }
      end
      private_constant :MUCH, :RETURNS
    end
  end
end
