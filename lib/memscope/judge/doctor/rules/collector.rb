# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Which variables keep the empty pages; nil if none does.
      KEPT = lambda do |f|
        names = f.collector.keepers
        "#{names.join(' and ')} #{names.one? ? 'keeps' : 'keep'} these pages." if names.any?
      end

      # Before Ruby 3.2: the setting that makes the GC keep fewer empty pages, and a sentence on how much it keeps.
      KEEP_LESS = "RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO=#{RubyHeap::CompactionForecast::KEEP_LESS}".freeze
      KEPT_BY_SETTING = lambda do |f, kept|
        next if kept < FLOOR

        "#{size(kept)} of pages with few or no objects stays after any collection: Ruby keeps up to " \
          "#{percent(f.ruby_heap.free_slots_max_ratio)} of all slots free, unless it was started with a lower ratio."
      end
      # A remedy and its cost, preceded by KEEP_LESS if that setting gains at least FLOOR.
      KEEPING_LESS = lambda do |kept, remedy, cost|
        next [remedy, "takes #{cost}"] if kept < FLOOR

        ["#{KEEP_LESS}\n#{remedy}",
         "requires a restart for the setting, which then causes more garbage collections; takes #{cost}"]
      end
      COMPACT = lambda do |f|
        next if f.compaction_refusal

        time = milliseconds(f.ruby_heap.live_slots + (f.ruby_heap.slots / 10))
        KEEPING_LESS.call(f.kept_compactable_bytes, purge(f, :compact),
                          "about #{time}, while no Ruby code runs")
      end
      RETURN_EMPTY = lambda do |f|
        unset = f.collector.keepers.map { |text| "unset #{text[/\A\w+/]}" }
        next [unset.join("\n"), RESTART] if unset.any?
        next if f.returned_empty_bytes.zero? && f.kept_empty_bytes < FLOOR

        collect = f.ruby?("3.1") || f.ruby?("3.2")
        KEEPING_LESS.call(f.kept_empty_bytes, "#{collect ? '8.times { GC.start }' : 'Process.warmup'} # in the program",
                          "#{collect ? 'full GCs' : 'a full GC and a compaction'}, while no Ruby code runs")
      end
      # What a GC that is off has left: garbage or, if that was just collected, the free memory where it was.
      LEFT_BEHIND = lambda do |f|
        next f.garbage_bytes unless f.ledger.collected

        [f.unused_bytes, f.bytes(:ruby_heap, :free_slots), f.bytes(:ruby_heap, :empty_pages)].compact.sum
      end

      # The garbage collector, and the pages that it keeps.
      COLLECTOR_RULES = table(
        collector_off: {
          subject: "a garbage collector that is switched off",
          present: ->(f) { f.collector.off },
          severity: ->(f) { f.reaches?(LEFT_BEHIND.call(f), 2 * FLOOR) ? :warning : :info },
          recoverable: "What is garbage stays until the collector runs.",
          title: lambda do |f|
            f.ruby_heap.gc_disabled? ? "the GC is disabled: nothing is collected" : "no old object is collected"
          end,
          explanation: ->(f) { ["The program has called #{f.collector.off.first}.", *unjudged(f)].join(" ") },
          evidence: ->(f) { { garbage_bytes: f.garbage_bytes, **f.snapshot.gc.slice(:count, :major_gc_count) } },
          remedy: lambda do |f|
            ["#{f.collector.off.last} # in the program",
             "takes effect at once; after an exception, only an ensure clause switches the collector on again"]
          end
        },
        allocation_tracing: {
          subject: "tracing of allocations",
          affected: ->(f) { f.collector.traced_bytes },
          floor: FLOOR, ratio: 0.05, confidence: :likely,
          recoverable: "Only the program can end the tracing.",
          title: ->(_, bytes) { "up to #{size(bytes)} is records of where each object was allocated" },
          explanation: "ObjectSpace.trace_object_allocations is on: it keeps a record for each object, and slows " \
                       "every allocation.",
          evidence: ->(f) { { rss_bytes: f.rss_bytes, live_slots: f.ruby_heap.live_slots } },
          remedy: ["ObjectSpace.trace_object_allocations_stop # in the program\n" \
                   "ObjectSpace.trace_object_allocations_clear",
                   "takes effect at once"]
        },
        compactable_heap: {
          subject: "a sparse Ruby heap",
          affected: :compactable_bytes,
          present: ->(f) { f.reaches?(1 - f.ruby_heap.occupancy, 0.5) }, # the GC's own goal is 40 % free slots
          floor: FLOOR, ratio: 0.10, confidence: :likely,
          recoverable: :compaction,
          title: ->(_, bytes) { "up to #{size(bytes)} of Ruby's heap is pages with few or no objects" },
          explanation: lambda do |f|
            heap = f.ruby_heap
            ["#{percent(heap.occupancy)} of #{count(heap.slots)} slots are in use, on #{count(heap.pages)} pages.",
             (KEPT_BY_SETTING.call(f, f.kept_compactable_bytes) unless f.compaction_refusal)].compact.join(" ")
          end,
          evidence: lambda do |f|
            heap = f.ruby_heap
            { rss_bytes: f.rss_bytes, ruby_heap_bytes: f.bytes(:ruby_heap), pages: heap.pages, slots: heap.slots,
              live_slots: heap.live_slots, occupancy: heap.occupancy, kept_by_setting_bytes: f.kept_compactable_bytes }
          end,
          remedy: COMPACT
        },
        empty_heap_pages: {
          subject: "empty pages that GC.stat hides",
          affected: :empty_heap_bytes,
          floor: FLOOR, ratio: 0.10, confidence: :likely,
          severity: ->(f) { KEPT.call(f) || f.returned_empty_bytes + f.kept_empty_bytes < FLOOR ? :info : :warning },
          recoverable: ->(f) { KEPT.call(f) || f.gained(:ruby_heap, f.returned_empty_bytes) },
          title: lambda do |f, bytes|
            "#{size(bytes)} of Ruby's heap is empty pages#{' that GC.stat hides' unless KEPT.call(f)}"
          end,
          explanation: lambda do |f|
            ["These pages hold no object, but Ruby keeps them.",
             KEPT.call(f) || KEPT_BY_SETTING.call(f, f.kept_empty_bytes)].compact.join(" ")
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, ruby_heap_bytes: f.bytes(:ruby_heap), pages: f.ruby_heap.pages,
              kept_by_setting_bytes: f.kept_empty_bytes }
          end,
          remedy: RETURN_EMPTY
        }
      )
      private_constant :KEPT, :KEEP_LESS, :KEPT_BY_SETTING, :KEEPING_LESS, :COMPACT, :RETURN_EMPTY, :LEFT_BEHIND,
                       :COLLECTOR_RULES
    end
  end
end
