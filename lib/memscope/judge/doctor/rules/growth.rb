# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Growth by at least this share of the RSS is a warning: less may be what any work leaves.
      GROWN_SHARE = 0.05
      MANY_THREADS = 50

      class << self
        private

        # A rule on a figure that has grown since the earlier diagnosis.
        def growth(id, now, grown = -> { growth_of(now) }, **entries, &block)
          rule(id, grown, inapplicable: :incomparable, floor: Diagnosis::GROWN, **entries) do |bytes|
            amount = figure(now)
            found = figure(block, bytes)
            { severity: reaches?(bytes, GROWN_SHARE * rss_bytes) ? :warning : :info, returns: :in_use, **found,
              figures: { time: format("%.1f", seconds), before_bytes: amount - bytes, now_bytes: amount,
                         **found[:figures].to_h },
              evidence: { seconds: seconds, now_bytes: amount, **found[:evidence].to_h },
              why: [:grew, *found[:why], by_history] }
          end
        end
      end

      rule(:leak,
           lambda do
             hours = verdict.evidence[:lasting_seconds].to_f / 3600
             verdict.leak? ? (verdict.bytes_per_hour * hours).to_i : 0
           end,
           inapplicable: -> { (verdict ? :too_early : :unwatched) unless judged? }) do |bytes|
        next unless verdict.leak?

        { why: [by_history, *{ objects: holders(bytes), native: unsized }[verdict.layer], unjudged],
          severity: verdict.eta_seconds&.<(3600) ? :critical : :warning, confidence: :likely,
          remedy: [verdict.remedy, nil],
          figures: { layer: verdict.layer_text, rate: mebibytes(verdict.bytes_per_hour.round) },
          evidence: { layer: verdict.layer, bytes_per_hour: verdict.bytes_per_hour, **verdict.evidence } }
      end

      growth(:native_growth, :untracked_bytes, :untracked_growth_bytes, inapplicable: :undivided, floor: FLOOR / 2) do
        threads = stacks_more["threads"]
        { why: [threads < MANY_THREADS ? :may_be : :threads, unsized, unjudged, (:fills unless judged?)],
          confidence: :likely, returns: :held, remedy: %i[profile profile_cost], figures: { threads: threads } }
      end

      growth(:in_use_growth, -> { figure(reachable(:in_use_bytes)) }, :in_use_growth_bytes,
             inapplicable: :divided, floor: FLOOR / 2) do
        { why: [:why, unsized, unjudged], confidence: :likely, returns: :held,
          remedy: %i[heap_graph heap_graph_cost], **(garbage_known? ? {} : { severity: :info }) }
      end

      growth(:object_growth, -> { figure(reachable(:ruby_bytes)) }, :object_growth_bytes,
             inapplicable: :undivided, floor: FLOOR / 2) do |bytes|
        kept = garbage_known? ? bytes : (garbage_max_bytes && (bytes - garbage_max_bytes))
        much = reaches?(kept, [FLOOR / 2, GROWN_SHARE * rss_bytes].max)
        { severity: much ? :warning : :info, why: [(:absent if absent_bytes >= FLOOR), *holders(bytes), unjudged],
          returns: :returns, remedy: %i[heap_graph heap_graph_cost],
          evidence: { garbage_bytes: garbage&.bytes, earlier_garbage_bytes: earlier.garbage&.bytes } }
      end
      private_constant :GROWN_SHARE, :MANY_THREADS
    end
  end
end
