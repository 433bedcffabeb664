# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Leaves of the ledger, the largest first, for people.
      MADE_OF = lambda do |f|
        f.ledger.rows.sort_by { |row| -row.bytes }.first(4).map { |row| "#{row.label} #{size(row.bytes)}" }.join(", ")
      end

      HELD_BY_NOBODY = "memory that a C extension holds through malloc, beyond what its objects tell Ruby"
      FIND_THE_CALLER = "memscope exec --conf=prof:true,prof_final:true -- COMMAND"

      # Before Ruby 3.2: what the GC keeps of empty pages, and the setting that makes it keep less.
      KEEP_LESS = "RUBY_GC_HEAP_FREE_SLOTS_MAX_RATIO=#{Purge::Compaction::KEEP_LESS}".freeze
      KEPT_BY_SETTING = lambda do |f, kept|
        next if kept < FLOOR

        "Of that #{size(kept)} stay whatever is collected: Ruby keeps up to " \
          "#{percent(f.ruby_heap.free_slots_max_ratio)} of its slots free, unless it is started with the setting."
      end
      # A remedy and its cost, with the setting in front where there is something to gain by it.
      KEEPING_LESS = lambda do |kept, remedy, cost|
        next [remedy, cost] if kept < FLOOR

        ["#{KEEP_LESS}\n#{remedy}", "for the setting a restart, and more garbage collections; then #{cost}"]
      end
      COMPACT = lambda do |f|
        next [nil, nil] if f.compaction_refusal

        time = milliseconds(f.ruby_heap.live_slots + (f.ruby_heap.slots / 10))
        KEEPING_LESS.call(f.kept_compactable_bytes, "Memscope.purge(:compact)",
                          "about #{time} in which no Ruby code runs")
      end
      RETURN_EMPTY = lambda do |f|
        collect = f.ruby?("3.1") || f.ruby?("3.2")
        KEEPING_LESS.call(f.kept_empty_bytes, collect ? "8.times { GC.start }" : "Process.warmup",
                          "#{collect ? 'full GCs' : 'a full GC and a compaction'}, in which no Ruby code runs")
      end
      private_constant :MADE_OF, :HELD_BY_NOBODY, :FIND_THE_CALLER, :KEEP_LESS, :KEPT_BY_SETTING, :KEEPING_LESS,
                       :COMPACT, :RETURN_EMPTY

      SMALL = Rule.new(
        id: :too_small,
        subject: "too small a process",
        affected: :rss_bytes,
        present: ->(f) { f.rss_bytes < 2 * FLOOR },
        severity: :info,
        recoverable: "There is nothing to give back.",
        title: ->(_, bytes) { "#{size(bytes)} are too little to judge" },
        explanation: "A bare Ruby is about as large. Ask again when the program has done some of its work."
      )
      private_constant :SMALL

      RUBY_RULES = [
        Rule.new(
          id: :rss_above_ruby,
          subject: "RSS far above Ruby's objects",
          affected: ->(f) { f.ruby_bytes && (f.rss_bytes - f.ruby_bytes) },
          floor: 2 * FLOOR, ratio: 0.50,
          severity: :info,
          recoverable: "The findings on its parts say what can be given back.",
          title: ->(_, bytes) { "#{size(bytes)} of the RSS are not Ruby's objects" },
          explanation: lambda do |f|
            "Ruby's objects account for #{size(f.ruby_bytes)}. The RSS is made of: #{MADE_OF.call(f)}."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, ruby_bytes: f.ruby_bytes, **f.ledger.rows.to_h { |row| [row.id, row.bytes] } }
          end,
          remedy: "puts Memscope.ledger(deep: true, objects: true)",
          remedy_cost: "some milliseconds"
        ),
        Rule.new(
          id: :compactable_heap,
          subject: "a Ruby heap to compact",
          affected: :compactable_bytes,
          present: ->(f) { f.ruby_heap.occupancy <= 0.5 }, # the GC itself aims at 40 % free
          floor: FLOOR, ratio: 0.10,
          confidence: :likely,
          recoverable: :compaction,
          title: ->(_, bytes) { "up to #{size(bytes)} of Ruby's heap are pages that few objects hold open, or none" },
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
          remedy: ->(f) { COMPACT.call(f).first },
          remedy_cost: ->(f) { COMPACT.call(f).last }
        ),
        Rule.new(
          id: :empty_heap_pages,
          subject: "empty pages that GC.stat hides",
          affected: :hidden_empty_bytes,
          floor: FLOOR, ratio: 0.10,
          recoverable: :returned_empty_bytes,
          confidence: :likely,
          title: ->(_, bytes) { "#{size(bytes)} of Ruby's heap are empty pages that GC.stat hides" },
          explanation: lambda do |f|
            ["Not one object lives in them, but Ruby counts them among the pages in use and keeps them.",
             KEPT_BY_SETTING.call(f, f.kept_empty_bytes)].compact.join(" ")
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, ruby_heap_bytes: f.bytes(:ruby_heap), pages: f.ruby_heap.pages,
              kept_by_setting_bytes: f.kept_empty_bytes }
          end,
          remedy: ->(f) { RETURN_EMPTY.call(f).first },
          remedy_cost: ->(f) { RETURN_EMPTY.call(f).last }
        ),
        Rule.new(
          id: :native_memory,
          subject: "native memory without an object",
          affected: :nobody_bytes,
          floor: FLOOR, ratio: 0.15,
          severity: :info,
          recoverable: "It is in use.",
          title: ->(_, bytes) { "#{size(bytes)} are in use, but no Ruby object accounts for them" },
          explanation: lambda do |_|
            "That is #{HELD_BY_NOBODY}. One reading cannot tell a leak from a cache: a second one, later, can."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, in_use_bytes: f.detail(:malloc, :in_use_bytes),
              held_by_objects_bytes: f.ledger.held_by_objects_bytes, held_by_nobody_bytes: f.nobody_bytes }
          end,
          remedy: "Memscope.doctor(since: earlier) # earlier = Memscope.doctor",
          remedy_cost: "some milliseconds"
        ),
        Rule.new(
          id: :native_growth,
          subject: "growth of native memory",
          inapplicable: :incomparable,
          affected: ->(f) { f.growth(&:nobody_bytes) },
          floor: FLOOR / 2, ratio: 0.05,
          confidence: :likely,
          recoverable: "It is in use: who allocated it has to free it.",
          title: ->(_, bytes) { "#{size(bytes)} more are in use that no Ruby object accounts for" },
          explanation: lambda do |f, bytes|
            "In #{format('%.1f', f.seconds)} s, #{HELD_BY_NOBODY}, rose from #{size(f.earlier.nobody_bytes)} to " \
              "#{size(f.nobody_bytes)}: #{size((bytes / [f.seconds, 0.001].max * 3600).round)} an hour. A cache that " \
              "is filling looks the same, but ends."
          end,
          evidence: lambda do |f|
            { seconds: f.seconds, rss_bytes: f.rss_bytes, earlier_rss_bytes: f.earlier.rss_bytes,
              held_by_nobody_bytes: f.nobody_bytes, earlier_held_by_nobody_bytes: f.earlier.nobody_bytes,
              growth_of_objects_bytes: f.growth(&:ruby_bytes) }
          end,
          remedy: FIND_THE_CALLER,
          remedy_cost: "a restart, under a jemalloc that was built with profiling; a few per cent of time"
        ),
        Rule.new(
          id: :object_growth,
          subject: "growth of Ruby's objects",
          inapplicable: :incomparable,
          affected: ->(f) { f.growth(&:ruby_bytes) },
          floor: FLOOR, ratio: 0.10,
          severity: :info,
          recoverable: "Objects, garbage that no GC has found yet included, hold it.",
          title: ->(_, bytes) { "#{size(bytes)} more are held by Ruby objects" },
          explanation: lambda do |f|
            "In #{format('%.1f', f.seconds)} s their slots and what they hold through malloc rose from " \
              "#{size(f.earlier.ruby_bytes)} to #{size(f.ruby_bytes)}."
          end,
          evidence: lambda do |f|
            { seconds: f.seconds, ruby_bytes: f.ruby_bytes, earlier_ruby_bytes: f.earlier.ruby_bytes,
              live_slots: f.ruby_heap.live_slots, earlier_live_slots: f.earlier.ruby_heap.live_slots }
          end,
          remedy: "require \"objspace\"; ObjectSpace.dump_all(output: :file)",
          remedy_cost: "about half a second for each million objects; the file holds the program's data"
        )
      ].freeze
      private_constant :RUBY_RULES
    end
  end
end
