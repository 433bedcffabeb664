# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/bodies"
require "memscope/show/report"

# A ledger and a diagnosis for an issue. Rendered as GitHub does, each line of the table has three cells.
class ReportMarkdownTest < MemscopeTest
  parallelize_me!

  def ledger(**given) = Memscope::Ledger.capture(Bodies.ledger(**given))

  def markdown(reading, **options) = Memscope::Report.render(reading, markdown: true, **options)

  # Cells of the lines below the head of the table.
  def cells(text)
    text.lines.grep(/^\|/).drop(2).map { |line| line.split(/(?<!\\)\|/)[1..-2].map(&:strip) }
  end

  def test_the_rows_are_those_of_the_ledger
    reading = ledger
    rows = cells(markdown(reading))
    top = reading.rows.select(&:visible?).map { |row| [row.label, format("%.1f", row.bytes / 1_048_576.0)] }

    shown = rows.reject { |label, *| label.start_with?("&emsp;", "RSS") }

    assert_equal(top, shown.map { |row| row.first(2) })
    assert_equal ["RSS", format("%.1f", reading.rss_bytes / 1_048_576.0), "100.0 %"], rows.last
    assert_match(/\A\*\*memscope .* glibc 2\.36 serves malloc \(proved\) .*\*\*\n/, markdown(reading))
  end

  def test_a_ledger_of_many_rows_has_at_most_sixty_lines
    children = Array.new(100) { |number| Bodies.row(:"arena_#{number}", "arena #{number}", number) }
    text = markdown(ledger(rows: [Bodies.row(:malloc, "malloc", 4950, children: children)]))

    assert_operator text.lines.size, :<=, 60
    assert_includes text, "arena 99 "
    refute_includes text, "arena 1 "
  end

  def test_a_diagnosis_has_its_findings_and_the_verdict
    diagnosis = Memscope.doctor
    text = markdown(diagnosis, sentence: "malloc grows by 3 MiB/h|")

    assert_includes text, "\nmalloc grows by 3 MiB/h\\|\n"
    diagnosis.each { |finding| assert_includes text, "- **#{finding.severity}**: #{finding.title}" }
    assert_operator text.lines.size, :<=, 60
  end

  def test_what_has_a_meaning_in_markdown_is_escaped
    text = markdown(ledger(rows: [Bodies.row(:malloc, "a|b <i> *c* [d]", 10)]))

    assert_includes text, "| a\\|b &lt;i> \\*c\\* \\[d\\] |"
  end
end
