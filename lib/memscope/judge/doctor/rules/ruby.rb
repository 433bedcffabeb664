# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      MAY_BE = "This memory may belong to C extensions or to Ruby's own structures, or be garbage: objects need not " \
               "report what they hold."
      ABSENT = lambda do |f|
        "#{size(f.absent_bytes)} of it is not resident: unused capacity, for instance." if f.absent_bytes >= FLOOR
      end
      # Sentences on what makes native memory an upper bound, and on what is not part of it.
      NOT_NATIVE = lambda do |f|
        [*("The sizes of objects: #{f.unsized_reason}." if f.unsized_reason),
         *("Ruby's just-in-time compiler holds #{between(*f.jit_bytes.minmax)} more." if f.jit_bytes.end >= MEBIBYTE),
         *("Tracing takes up to #{size(f.collector.traced_bytes)} of it." if f.collector.traced_bytes >= FLOOR)]
      end

      MANY_THREADS = 50
      THREADS_MORE = lambda do |f|
        more = f.stacks_more["threads"]
        next if more < MANY_THREADS

        "#{count(more)} threads came meanwhile, each of which holds memory in malloc: `#{heap(f)} --paths-to Thread`."
      end
      FILLS = "A cache that is still filling looks the same, but stops growing."

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
        native_memory: {
          subject: "memory in use in malloc that no Ruby object accounts for",
          affected: :untracked_bytes,
          floor: FLOOR, ratio: 0.15, severity: :info,
          recoverable: "The memory is in use.",
          title: lambda { |_, bytes|
            "up to #{size(bytes)} of malloc memory in use is native: no Ruby object accounts for it"
          },
          explanation: lambda do |f|
            [MAY_BE, *NOT_NATIVE.call(f), *unsized(f), *unjudged(f),
             *("Collect garbage first." if collect(f)),
             *("Read again in a few minutes to see whether it grows." if f.incomparable)].join(" ")
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, in_use_bytes: f.detail(:malloc, :in_use_bytes),
              held_by_objects_bytes: f.ledger.held_by_objects_bytes, untracked_bytes: f.untracked_bytes }
          end,
          remedy: ->(f) { collect(f) ? [collect(f), nil] : [profile(f), PROFILING] }
        },
        native_growth: growth(
          subject: "growth of native memory", inapplicable: :undivided, confidence: :likely, floor: FLOOR / 2,
          now: :untracked_bytes.to_proc, affected: :untracked_growth_bytes,
          recoverable: "Only the code that allocated this memory can free it, or a GC if it is garbage.",
          title: ->(_, bytes) { "malloc memory that no Ruby object accounts for has grown by #{size(bytes)}" },
          why: ->(f, _) { [*(THREADS_MORE.call(f) || MAY_BE), *unsized(f), *unjudged(f), *(FILLS unless f.judged?)] },
          remedy: ->(f) { [profile(f), PROFILING] }
        ),
        in_use_growth: growth(
          subject: "growth of memory in use", confidence: :likely, floor: FLOOR / 2,
          inapplicable: lambda do |f|
            f.incomparable || ("growth of objects and of native memory tells more" unless f.unsized_growth)
          end,
          now: ->(f) { f.both_in_use.last }, affected: :in_use_growth_bytes,
          severity: ->(f) { f.garbage_known? ? GROWTH_SEVERITY.call(f, f.in_use_growth_bytes) : :info },
          recoverable: "Only the code that holds this memory can free it, or a GC if it is garbage.",
          title: ->(_, bytes) { "#{size(bytes)} more is in use; how much of it Ruby objects hold is unknown" },
          why: ->(f, _) { ["The sizes of objects: #{f.unsized_growth}.", *unsized(f), *unjudged(f)] },
          remedy: ->(f) { [heap(f), WALKING] }
        ),
        object_growth: growth(
          subject: "growth of Ruby objects", inapplicable: :undivided, floor: FLOOR / 2,
          now: ->(f) { f.object_bytes.last }, affected: :object_growth_bytes,
          severity: lambda do |f|
            f.reaches?(f.kept_growth_bytes, FLOOR / 2) ? GROWTH_SEVERITY.call(f, f.kept_growth_bytes) : :info
          end,
          recoverable: "Ruby objects hold this memory; the code that keeps these objects must release them.",
          title: ->(_, bytes) { "Ruby objects hold #{size(bytes)} more" },
          why: ->(f, bytes) { [*ABSENT.call(f), *holders(f, bytes), *unjudged(f)] },
          evidence: lambda do |f|
            { seconds: f.seconds, **f.both(:ruby_bytes), garbage_bytes: f.garbage&.bytes,
              earlier_garbage_bytes: f.earlier.garbage&.bytes, garbage_max_bytes: f.garbage_max_bytes }
          end,
          remedy: ->(f) { [heap(f), WALKING] }
        )
      )
      private_constant :MAY_BE, :ABSENT, :NOT_NATIVE, :MANY_THREADS, :THREADS_MORE, :FILLS, :SMALL, :RUBY_RULES
    end
  end
end
