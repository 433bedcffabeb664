# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
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

      # What the finding of unattributed memory says in its own way: a library maps the memory, or gets it from the C
      # library's malloc beside jemalloc, or both.
      UNATTRIBUTED = lambda do |bytes|
        libraries = evidence.mappers.to_a
        called = [growth_of(:c_library_bytes), bytes].min
        rest = bytes - called >= FLOOR
        mapped = libraries.any? ? :why_named : :why
        { **(called.zero? || rest ? {} : { title: :title_called }),
          why: called.zero? ? mapped : [:why_called, (:why_rest if rest)],
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
        { why: [(:rows if rows.any?), (:compactions if compactions.positive?),
                (:collections if collections.positive?)], returns: :returns,
          remedy: [objects ? :remedy_of_objects : :remedy, nil],
          figures: { uss_growth_bytes: growth_of(:uss_bytes), rss_growth_bytes: growth_of(:rss_bytes),
                     rows: rows.map { |row, grown| "#{row.label} #{size(grown)}" }.join(", "),
                     collections: counted(collections, "full GCs"),
                     compactions: counted(compactions, "compactions") } }
      end
      private_constant :MORE, :UNATTRIBUTED
    end
  end
end
