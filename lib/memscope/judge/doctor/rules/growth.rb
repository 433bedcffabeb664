# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Growth by at least this share of the RSS is a warning. Any work may leave less.
      GROWN_SHARE = 0.05
      MANY_THREADS = 50

      # A rule on a figure that has grown since the earlier diagnosis.
      def self.growth(id, now, grown = -> { growth_of(now) }, **entries, &block)
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

      # How many stacks or mappings came, and which file grew most, for people.
      MORE = {
        stacks: lambda do
          more = stacks_more.select { |_what, number| number.positive? }
          more = more.map { |what, number| text(:more, of: :stacks_growth, number: number, stacks: what) }
          more.join(", ") if more.any?
        end,
        shared_memory: lambda do
          before = earlier.evidence.shared_files.to_h
          files = evidence.shared_files.to_h.map { |file, bytes| [file, bytes - before.fetch(file, 0)] }
          file, more = files.max_by(&:last)
          text(:more, of: :shared_memory_growth, more_bytes: more, file: file) if more&.positive?
        end,
        unattributed: lambda do
          more = ledger.mappings.to_i - earlier.ledger.mappings.to_i
          text(:more, of: :unattributed_growth, mappings: counted(more, "mappings")) if more.positive?
        end
      }.freeze

      # The finding of unattributed memory has texts of its own: a library maps the memory, or gets it from the C
      # library's malloc beside jemalloc, or both.
      UNATTRIBUTED = lambda do |bytes|
        libraries = evidence.mappers.to_a
        called = [growth_of(:c_library_bytes), bytes].min
        rest = bytes - called >= FLOOR
        { **(called.zero? || rest ? {} : { title: :title_called }),
          why: called.zero? ? [:why, (:libraries if libraries.any?)] : [:why_called, (:why_rest if rest)],
          figures: { libraries: libraries.join(", "), called_bytes: called } }
      end

      %i[stacks unattributed shared_memory files jit ruby_internal].each do |row|
        growth(:"#{row}_growth", -> { row_bytes(row) || 0 }) do |bytes|
          own = row == :unattributed ? figure(UNATTRIBUTED, bytes) : {}
          title = text(own.fetch(:title, :title), of: :"#{row}_growth", bytes: bytes)
          { why: :why, **own, title: [title, *figure(MORE[row])].join(": "), remedy: [:remedy, nil],
            figures: { **own[:figures].to_h, type: stacks_more.max_by(&:last).first.chop.capitalize } }
        end
      end

      # The findings on free memory judge it.
      growth(:free_growth, :free_bytes) { { severity: :info, returns: :returns } }

      growth(:unshared_growth, :uss_bytes, :unshared_growth_bytes) do
        own = ledger.rows.filter_map do |row|
          before = earlier.row(row.id)&.private_bytes
          [row, row.private_bytes - before] if before && row.private_bytes
        end
        rows = own.select { |_row, grown| grown >= MEBIBYTE }.max_by(3, &:last)
        objects = rows.first&.first&.id == :ruby_heap
        collections, compactions = %i[major_gc_count compact_count].map do |key|
          snapshot.gc[key].to_i - earlier.snapshot.gc[key].to_i
        end
        { why: [(:rows if rows.any?), (:compactions if compactions.positive?), (:collections if collections.positive?)],
          returns: :returns, remedy: [objects ? :remedy_of_objects : :remedy, nil],
          figures: { uss_growth_bytes: growth_of(:uss_bytes), rss_growth_bytes: growth_of(:rss_bytes),
                     rows: rows.map { |row, grown| "#{row.label} #{size(grown)}" }.join(", "),
                     collections: counted(collections, "full GCs"), compactions: counted(compactions, "compactions") } }
      end
    end
  end
end
