# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      PROFILING = "takes half a minute, and a few per cent of the time of threads that allocate; shows only what is " \
                  "allocated meanwhile"
      UNREAD = "this process takes no readings of itself at intervals, or took its first less than two minutes ago"
      # Whether malloc has grown, since the last major GC, by more than Ruby usually allows: Ruby collects after
      # gc_room.
      UNJUDGED = ->(f) { f.unjudged_increase_bytes > 2 * f.gc_room }
      # The ledger rows that grow, the fastest first, for people.
      FASTEST = lambda do |f|
        labels = f.ledger.rows.to_h { |row| [row.id, row.label] }
        rows = f.growth.rows_per_hour.select { |_id, bytes| bytes >= MEBIBYTE }.sort_by { |_id, bytes| -bytes }
        rows.first(3).map { |id, bytes| "#{labels.fetch(id, id)} #{per_hour(bytes)}" }.join(", ")
      end

      GROWTH = table(
        growth: {
          subject: "growth since the process booted",
          inapplicable: ->(f) { UNREAD unless f.growth&.lasting_per_hour },
          affected: ->(f) { f.growth.since_boot_bytes && [f.growth.since_boot_bytes, 0].max },
          present: ->(f) { f.reaches?(f.growth.lasting_per_hour, 2 * FLOOR) },
          floor: FLOOR, ratio: 0.05, confidence: :likely,
          recoverable: "The findings on its parts show what can be returned.",
          title: ->(f) { "RSS grows by #{per_hour(f.growth.lasting_per_hour)}" },
          explanation: lambda do |f, bytes|
            fastest = FASTEST.call(f)
            ["It has grown by #{size(bytes)} since boot at #{f.growth.booted_at.strftime('%F %T')} UTC, " \
             "according to #{count(f.growth.samples)} readings#{": #{fastest}" unless fastest.empty?}.",
             *unjudged(f)].join(" ")
          end,
          evidence: ->(f) { { rss_bytes: f.rss_bytes, **f.growth.to_h, garbage_max_bytes: f.garbage_max_bytes } },
          remedy: ->(f) { [[collect(f), profile(f)].join("\n"), PROFILING] }
        },
        # Garbage left by a peak looks the same as memory that is still held: only a collection tells them apart.
        possible_garbage: {
          subject: "garbage that counts as in use",
          affected: :garbage_max_bytes,
          present: ->(f) { f.garbage_max_bytes >= MUCH || UNJUDGED.call(f) },
          confidence: ->(f) { UNJUDGED.call(f) ? :likely : :certain },
          floor: 2 * FLOOR, ratio: 0.33, severity: :info,
          recoverable: "How much of it is garbage is only known after a collection.",
          title: ->(_, bytes) { "up to #{size(bytes)} of what is in use may be garbage" },
          explanation: lambda do |f|
            "It is live slots and malloc memory that the program may have let go of since the last full garbage " \
              "collection; #{size(f.unjudged_increase_bytes)} was allocated through malloc since then, net."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, garbage_max_bytes: f.garbage_max_bytes, in_use_bytes: f.in_use_bytes,
              unjudged_increase_bytes: f.unjudged_increase_bytes, **f.snapshot.gc.slice(:count, :major_gc_count) }
          end,
          remedy: lambda do |f|
            ["#{collect(f)}\n#{purge(f, :gc)}",
             "takes a full GC, about #{milliseconds(f.ruby_heap.live_slots / 10)}, while no Ruby code runs; in a " \
             "forked worker, pages that it shared with its parent become its own"]
          end
        }
      )
      private_constant :PROFILING, :UNREAD, :UNJUDGED, :FASTEST, :GROWTH
    end
  end
end
