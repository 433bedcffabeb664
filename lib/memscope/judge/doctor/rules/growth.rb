# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Growth by at least this share of the RSS is a warning: less may be what any work leaves.
      GROWN_SHARE = 0.05
      MANY_THREADS = 50
      MAY_BE = "This memory may belong to C extensions or to Ruby's own structures, " \
               "or be garbage: objects need not report what they hold."
      IN_USE = "Only the code that holds this memory can free it, or a GC if it is garbage."
      FILLS = "A cache that is still filling looks the same, but stops growing."

      class << self
        private

        # A rule on a figure that has grown since the earlier diagnosis.
        def growth(id, subject, now, grown = -> { growth_of(now) }, **entries, &block)
          rule(id, subject, grown, inapplicable: :incomparable, floor: Diagnosis::GROWN, **entries) do |bytes|
            amount = figure(now)
            found = figure(block, bytes)
            time = "In #{format('%.1f', seconds)} s, "
            lead = found[:lead] || "it grew from #{size(amount - bytes)} to #{size(amount)}."
            { severity: reaches?(bytes, GROWN_SHARE * rss_bytes) ? :warning : :info,
              returns: "The memory is in use.", **found.except(:lead),
              evidence: { seconds: seconds, now_bytes: amount, **found[:evidence].to_h },
              why: ["#{time}#{lead}", *found[:why], by_history] }
          end
        end
      end

      rule(:leak, "unbounded growth, judged by the process's history",
           lambda do
             hours = verdict.evidence[:lasting_seconds].to_f / 3600
             verdict.leak? ? (verdict.bytes_per_hour * hours).to_i : 0
           end,
           inapplicable: lambda do
             unless judged?
               "whether it grows is #{verdict ? 'too early to tell' : 'not known without a history'}"
             end
           end) do |bytes|
        next unless verdict.leak?

        { title: "leak of #{verdict.layer_text}: +#{mebibytes(verdict.bytes_per_hour.round)} MiB/h",
          why: [by_history, *{ objects: holders(bytes), native: unsized }[verdict.layer], unjudged],
          severity: verdict.eta_seconds&.<(3600) ? :critical : :warning, confidence: :likely,
          returns: "The findings on the parts of RSS show what can be returned.",
          remedy: [verdict.remedy, nil],
          evidence: { layer: verdict.layer, bytes_per_hour: verdict.bytes_per_hour, **verdict.evidence } }
      end

      growth(:native_growth, "growth of native memory", :untracked_bytes, :untracked_growth_bytes,
             inapplicable: :undivided, floor: FLOOR / 2) do |bytes|
        threads = stacks_more["threads"]
        came = "#{count(threads)} threads came meanwhile, each of which holds " \
               "memory in malloc: `#{command('heap', '--paths-to Thread')}`."
        { title: "malloc memory that no Ruby object accounts for has grown by #{size(bytes)}",
          why: [threads < MANY_THREADS ? MAY_BE : came, unsized, unjudged, (FILLS unless judged?)],
          confidence: :likely, returns: IN_USE, remedy: profile }
      end

      growth(:in_use_growth, "growth of memory in use", -> { figure(reachable(:in_use_bytes)) },
             :in_use_growth_bytes, inapplicable: :divided, floor: FLOOR / 2) do |bytes|
        { title: "#{size(bytes)} more is in use; how much of it Ruby objects hold is unknown",
          why: ["The sizes of objects: #{unsized_growth}.", unsized, unjudged],
          confidence: :likely, returns: IN_USE, remedy: heap_graph,
          **(garbage_known? ? {} : { severity: :info }) }
      end

      growth(:object_growth, "growth of Ruby objects", -> { figure(reachable(:ruby_bytes)) },
             :object_growth_bytes, inapplicable: :undivided, floor: FLOOR / 2) do |bytes|
        kept = garbage_known? ? bytes : (garbage_max_bytes && (bytes - garbage_max_bytes))
        absent = "#{size(absent_bytes)} of it is not resident: unused capacity, for instance."
        much = reaches?(kept, [FLOOR / 2, GROWN_SHARE * rss_bytes].max)
        { title: "Ruby objects hold #{size(bytes)} more", severity: much ? :warning : :info,
          why: [(absent if absent_bytes >= FLOOR), *holders(bytes), unjudged],
          returns: "The code that keeps these objects must release them.", remedy: heap_graph,
          evidence: { garbage_bytes: garbage&.bytes,
                      earlier_garbage_bytes: earlier.garbage&.bytes } }
      end
      private_constant :GROWN_SHARE, :MANY_THREADS, :MAY_BE, :IN_USE, :FILLS
    end
  end
end
