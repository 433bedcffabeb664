# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      PROFILING = "takes half a minute, and a few per cent of the time of threads that allocate; shows only memory " \
                  "allocated meanwhile"
      WALKING = "a heap graph takes 1 to 3 s and 60 to 120 MiB per million objects, in a forked child"
      # Whether malloc has grown, since the last major GC, by more than twice gc_room. Ruby usually collects once malloc
      # has grown by gc_room.
      UNJUDGED = ->(f) { f.unjudged_increase_bytes > 2 * f.gc_room }
      # The lever that returns malloc's free memory.
      RETURNS = { glibc: :trim, jemalloc: :purge }.freeze
      # Whether a collection, followed by a trim or purge, returns at least the largest of 45 % of the RSS, gc_room and
      # 2 * FLOOR; or at least the larger of MUCH and twice gc_room. Between two collections, Ruby lets malloc grow by
      # gc_room.
      MUCH_GARBAGE = lambda do |f|
        least = f.garbage_gain&.begin or next
        (f.reaches?(f.of_rss(least), 0.45) && f.reaches?(least, [2 * FLOOR, f.gc_room].max)) ||
          (f.reaches?(least, MUCH) && f.reaches?(least, 2 * f.gc_room))
      end

      GROWTH = table(
        leak: {
          subject: "unbounded growth, judged by the process's history",
          inapplicable: lambda do |f|
            "whether it grows is #{f.verdict ? 'too early to tell' : 'not known without a history'}" unless f.judged?
          end,
          affected: lambda do |f|
            f.verdict.leak? ? f.verdict.bytes_per_hour * f.verdict.evidence[:lasting_seconds] / 3600 : 0
          end,
          present: ->(f) { f.verdict.leak? },
          severity: ->(f) { f.verdict.eta_seconds&.<(3600) ? :critical : :warning }, confidence: :likely,
          recoverable: "The findings on the parts of RSS show what can be returned.",
          title: ->(f) { "leak of #{f.verdict.layer_text}: +#{per_hour(f.verdict.bytes_per_hour)}" },
          explanation: lambda do |f, bytes|
            [*by_history(f), *{ objects: holders(f, bytes), native: unsized(f) }[f.verdict.layer],
             *unjudged(f)].join(" ")
          end,
          evidence: lambda do |f|
            { **f.verdict.to_h.slice(:layer, :bytes_per_hour, :bytes_per_hour_low, :bytes_per_hour_high, :eta_seconds),
              **f.verdict.evidence }
          end,
          remedy: ->(f) { [f.verdict.remedy, nil] }
        },
        # Where a forked child cannot tell what is garbage, garbage left by a peak looks the same as what is still held:
        # only a collection tells them apart.
        possible_garbage: {
          subject: "garbage that counts as in use",
          affected: :garbage_bytes,
          present: lambda do |f|
            f.garbage || UNJUDGED.call(f) ||
              (f.garbage_max_bytes >= MUCH && f.reaches?(f.of_rss(f.garbage_max_bytes), 0.33))
          end,
          confidence: ->(f) { f.garbage.nil? && UNJUDGED.call(f) ? :likely : :certain },
          floor: 2 * FLOOR, ratio: 0.10,
          severity: ->(f) { MUCH_GARBAGE.call(f) ? :warning : :info },
          recoverable: ->(f) { f.garbage_gain || "Only a collection shows how much of it is garbage." },
          title: lambda do |f, bytes|
            next "up to #{size(bytes)} of what is in use may be garbage" unless f.garbage

            "#{size(bytes)} is garbage that Ruby has not collected"
          end,
          explanation: lambda do |f|
            since = "malloc has grown by #{size(f.unjudged_increase_bytes)} since the last full garbage collection. " \
                    "#{f.collector.next_full}"
            next "The program may no longer use some of its live slots and malloc memory. #{since}" unless f.garbage

            "#{count(f.garbage.objects)} objects are no longer reachable. Collecting them, and then returning " \
              "malloc's free memory, returns #{between(*f.garbage_gain.minmax)}. #{since}"
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, garbage_max_bytes: f.garbage_max_bytes, **f.garbage.to_h,
              gc_room_bytes: f.gc_room, in_use_bytes: f.in_use_bytes,
              unjudged_increase_bytes: f.unjudged_increase_bytes, **f.snapshot.gc.slice(:count, :major_gc_count) }
          end,
          remedy: lambda do |f|
            levers = f.garbage ? [:gc, *RETURNS[f.allocator.name]] : [:gc]
            [[*(collect(f) unless f.garbage), purge(f, *levers)].join("\n"),
             "takes a full GC, about #{milliseconds(f.ruby_heap.live_slots / 10)}, while no Ruby code runs; in a " \
             "forked worker, pages that it shared with its parent become its own"]
          end
        }
      )
      private_constant :PROFILING, :WALKING, :UNJUDGED, :RETURNS, :MUCH_GARBAGE, :GROWTH
    end
  end
end
