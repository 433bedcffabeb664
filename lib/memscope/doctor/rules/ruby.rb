# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # The largest rows of the ledger, for people.
      MADE_OF = lambda do |f|
        f.ledger.rows.sort_by { |row| -row.bytes }.first(4).map { |row| "#{row.label} #{size(row.bytes)}" }.join(", ")
      end

      MAY_BE = "This memory may belong to C extensions or to Ruby's own structures, or be garbage: objects need not " \
               "report what they hold."
      ABSENT = lambda do |f|
        "#{size(f.absent_bytes)} of it is not resident: unused capacity, for instance." if f.absent_bytes >= FLOOR
      end
      # Sentences on what makes native memory an upper bound, and on what is not part of it.
      NOT_NATIVE = lambda do |f|
        [*("The sizes of objects: #{f.unsized_reason}." if f.unsized_reason),
         *("Ruby's just-in-time compiler holds #{size(f.jit_bytes)} more." if f.jit_bytes >= MEBIBYTE)]
      end

      # Which variables keep the empty pages; nil if none does.
      KEPT = lambda do |f|
        names = f.collector.variables_that_keep(f.hidden_empty_bytes)
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
        if KEPT.call(f)
          names = f.collector.variables_that_keep(f.hidden_empty_bytes).map { |text| "unset #{text[/\A\w+/]}" }
          next [names.join("\n"), "requires a restart"]
        end
        next if f.returned_empty_bytes.zero? && f.kept_empty_bytes < FLOOR

        collect = f.ruby?("3.1") || f.ruby?("3.2")
        KEEPING_LESS.call(f.kept_empty_bytes, "#{collect ? '8.times { GC.start }' : 'Process.warmup'} # in the program",
                          "#{collect ? 'full GCs' : 'a full GC and a compaction'}, while no Ruby code runs")
      end

      SMALL = table(
        too_small: {
          subject: "a process too small to judge",
          affected: :rss_bytes,
          present: ->(f) { f.rss_bytes < 2 * FLOOR },
          severity: :info,
          recoverable: "There is nothing to return.",
          title: ->(_, bytes) { "#{size(bytes)} is too little to judge" },
          explanation: "Ruby alone, without a program, is about as large. Run the doctor again when the program has " \
                       "done some work."
        }
      )

      RUBY_RULES = table(
        rss_above_ruby: {
          subject: "RSS far above Ruby objects",
          affected: ->(f) { f.ruby_bytes && (f.rss_bytes - f.ruby_bytes + f.absent_bytes) },
          floor: 2 * FLOOR, ratio: 0.50, severity: :info,
          recoverable: "The findings on the parts of RSS show what can be returned.",
          title: ->(f, bytes) { "#{'up to ' unless f.sized?}#{size(bytes)} of RSS is outside Ruby objects" },
          explanation: lambda do |f|
            "Ruby objects account for #{'at least ' unless f.sized?}#{size(f.ruby_bytes)}. The largest parts of RSS: " \
              "#{MADE_OF.call(f)}."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, ruby_bytes: f.ruby_bytes, **f.ledger.rows.to_h { |row| [row.id, row.bytes] } }
          end,
          remedy: lambda do |f|
            ["memscope report --pid #{f.ledger.pid} --deep --objects",
             "takes no longer than this diagnosis did, #{milliseconds(f.evidence.total_cost[:wall_us])}"]
          end
        },
        collector_off: {
          subject: "a garbage collector that is switched off",
          present: ->(f) { f.collector.off },
          severity: ->(f) { f.reaches?(f.left_behind_bytes, 2 * FLOOR) ? :warning : :info },
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
          affected: :hidden_empty_bytes,
          floor: FLOOR, ratio: 0.10, confidence: :likely,
          severity: ->(f) { KEPT.call(f) || f.returned_empty_bytes + f.kept_empty_bytes < FLOOR ? :info : :warning },
          recoverable: ->(f) { KEPT.call(f) || f.gained(:ruby_heap, f.returned_empty_bytes) },
          title: ->(_, bytes) { "#{size(bytes)} of Ruby's heap is empty pages that GC.stat hides" },
          explanation: lambda do |f|
            ["These pages hold no object, but Ruby counts them among the pages in use and keeps them.",
             KEPT.call(f) || KEPT_BY_SETTING.call(f, f.kept_empty_bytes)].compact.join(" ")
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, ruby_heap_bytes: f.bytes(:ruby_heap), pages: f.ruby_heap.pages,
              kept_by_setting_bytes: f.kept_empty_bytes }
          end,
          remedy: RETURN_EMPTY
        },
        native_memory: {
          subject: "memory in use in malloc that no Ruby object accounts for",
          affected: :untracked_bytes,
          floor: FLOOR, ratio: 0.15, severity: :info,
          recoverable: "The memory is in use.",
          title: lambda { |_, bytes|
            "up to #{size(bytes)} of malloc memory in use is native: no Ruby object accounts for it"
          },
          explanation: lambda do |f|
            [MAY_BE, *NOT_NATIVE.call(f), *unjudged(f),
             *("Collect garbage first." if collect(f)),
             "Read again in a few minutes to see whether it grows."].join(" ")
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, in_use_bytes: f.detail(:malloc, :in_use_bytes),
              held_by_objects_bytes: f.ledger.held_by_objects_bytes, untracked_bytes: f.untracked_bytes }
          end,
          remedy: ->(f) { [[*collect(f), profile(f)].join("\n"), PROFILING] }
        },
        native_growth: {
          subject: "growth of native memory",
          inapplicable: :undivided,
          affected: :untracked_growth_bytes,
          floor: FLOOR / 2, ratio: 0.05, confidence: :likely,
          recoverable: "Only the code that allocated this memory can free it, or a GC if it is garbage.",
          title: ->(_, bytes) { "malloc memory that no Ruby object accounts for has grown by #{size(bytes)}" },
          explanation: lambda do |f, bytes|
            ["In #{format('%.1f', f.seconds)} s, it grew from #{size(f.untracked_bytes - bytes)} to " \
             "#{size(f.untracked_bytes)}. #{MAY_BE}", *unjudged(f),
             *(by_history(f) || "A cache that is still filling looks the same, but stops growing.")].join(" ")
          end,
          evidence: lambda do |f|
            { seconds: f.seconds, rss_bytes: f.rss_bytes, earlier_rss_bytes: f.earlier.rss_bytes,
              untracked_bytes: f.untracked_bytes, earlier_untracked_bytes: f.earlier.untracked_bytes,
              growth_of_objects_bytes: f.object_growth_bytes,
              garbage_max_bytes: f.garbage_max_bytes }
          end,
          remedy: ->(f) { [profile(f), PROFILING] }
        },
        in_use_growth: {
          subject: "growth of memory in use",
          inapplicable: lambda do |f|
            f.incomparable || ("growth of objects and of native memory tells more" unless f.unsized_growth)
          end,
          affected: :in_use_growth_bytes,
          floor: FLOOR / 2, ratio: 0.05, confidence: :likely, # as for native_growth
          severity: ->(f) { f.garbage_known? ? :warning : :info },
          recoverable: "Only the code that holds this memory can free it, or a GC if it is garbage.",
          title: ->(_, bytes) { "#{size(bytes)} more is in use; how much of it Ruby objects hold is unknown" },
          explanation: lambda do |f|
            ["In #{format('%.1f', f.seconds)} s, live slots and malloc memory in use grew from " \
             "#{size(f.both_in_use.first)} to #{size(f.both_in_use.last)}. The sizes of " \
             "objects: #{f.unsized_growth}.", *unjudged(f), *by_history(f)].join(" ")
          end,
          evidence: lambda do |f|
            { seconds: f.seconds, rss_bytes: f.rss_bytes, in_use_bytes: f.in_use_bytes,
              earlier_in_use_bytes: f.earlier.in_use_bytes, garbage_max_bytes: f.garbage_max_bytes }
          end,
          remedy: ->(f) { [[heap(f), profile(f)].join("\n"), "#{WALKING}; the profile #{PROFILING}"] }
        },
        object_growth: {
          subject: "growth of Ruby objects",
          inapplicable: :undivided,
          affected: :object_growth_bytes,
          floor: FLOOR / 2, ratio: 0.05, # as for native_growth
          severity: ->(f) { f.reaches?(f.kept_growth_bytes, FLOOR / 2) ? :warning : :info },
          recoverable: "Ruby objects hold this memory; the code that keeps these objects must release them.",
          title: ->(_, bytes) { "Ruby objects hold #{size(bytes)} more" },
          explanation: lambda do |f|
            ["In #{format('%.1f', f.seconds)} s, their slots and what they hold through malloc grew from " \
             "#{size(f.object_bytes.first)} to #{size(f.object_bytes.last)}.",
             *ABSENT.call(f), *holders(f), *unjudged(f), *by_history(f)].join(" ")
          end,
          evidence: lambda do |f|
            { seconds: f.seconds, ruby_bytes: f.ruby_bytes, earlier_ruby_bytes: f.earlier.ruby_bytes,
              garbage_bytes: f.garbage&.bytes, earlier_garbage_bytes: f.earlier.garbage&.bytes,
              live_slots: f.ruby_heap.live_slots, earlier_live_slots: f.earlier.ruby_heap.live_slots,
              garbage_max_bytes: f.garbage_max_bytes }
          end,
          remedy: lambda do |f|
            [[heap(f), census(f), profile(f)].join("\n"),
             "#{WALKING}; each census takes a full GC and 0.1 s per million objects; the profile #{PROFILING}"]
          end
        }
      )
      private_constant :MADE_OF, :KEEP_LESS, :KEPT_BY_SETTING, :KEEPING_LESS, :COMPACT, :RETURN_EMPTY,
                       :MAY_BE, :ABSENT, :NOT_NATIVE, :SMALL, :RUBY_RULES
    end
  end
end
