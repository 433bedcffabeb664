# frozen_string_literal: true

module Memscope
  module Report
    # A ledger or a diagnosis as Markdown, to be pasted into an issue: versions, the allocator, the rows, the findings'
    # titles; at most 60 lines.
    class MarkdownPage < ReadingPage
      ROWS = 32
      FINDINGS = 12
      private_constant :ROWS, :FINDINGS

      # @param reading [Ledger, Diagnosis]
      # @param sentence [String, nil] the sentence of a verdict
      # (see ReadingPage#initialize)
      def initialize(reading, sentence: nil, **display)
        super(reading, **display, width: Page::WIDEST, color: false)
        @ledger = reading.kind == "diagnosis" ? reading.evidence.ledger : reading
        @sentence = sentence
      end

      private

      def title = "**#{escaped(@page.title(@ledger))}**"

      def sections = [(escaped(@sentence) if @sentence), table, (findings if @reading.kind == "diagnosis")]

      def table
        return escaped("RSS unknown: #{@ledger.reasons[:rss_bytes]}") unless @ledger.rss_bytes

        ["| memory | MiB | of RSS |", "|---|---:|---:|", *rows.map { |depth, row| line(depth, row.label, row.bytes) },
         line(0, "RSS", @ledger.rss_bytes)]
      end

      # The top rows and the largest of those below them, as many as fit, in the order of the ledger.
      def rows
        all = @ledger.rows.select(&:visible?).flat_map { |row| [[0, row], *below(row)] }
        most = all.sort_by.with_index { |(depth, row), index| [depth.zero? ? 0 : 1, -row.bytes, index] }.first(ROWS)
        all & most
      end

      def below(row) = row.children.select(&:visible?).map { |child| [1, child] }

      def line(depth, label, bytes)
        share = @ledger.rss_bytes.zero? ? @page.unknown : format("%.1f %%", 100.0 * bytes / @ledger.rss_bytes)
        "| #{'&emsp;' * depth}#{escaped(label)} | #{mebibytes(bytes)} | #{share} |"
      end

      def findings
        return escaped(FindingsPage.without_problems(@reading)) if @reading.none?

        lines = @reading.first(FINDINGS).map { |finding| "- **#{finding.severity}**: #{escaped(finding.title)}" }
        more = @reading.count - FINDINGS
        [*lines, *("- … and #{more} more" if more.positive?)]
      end

      def reasons = nil

      def footer = cost

      # Replaces what has a meaning in a table, in Markdown or in HTML; code in backquotes stays code.
      def escaped(text)
        text.tr("\n", " ").gsub("&", "&amp;").gsub("<", "&lt;").gsub(/[|*\[\]\\]/) { |sign| "\\#{sign}" }
      end
    end
  end
end
