# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/cli/cli"

class McpAnswerTest < MemscopeTest
  Answer = Memscope::CLI::McpCommand::Answer

  def answer(text, tool: "doctor", readings: [], **arguments)
    Answer.new(tool, { pid: 7, **arguments }, text, readings)
  end

  def next_calls(text, **options) = answer(text, **options).hints[:next].map(&:values)

  def test_a_short_text_is_whole
    text = answer("a\nb\n").text(1)

    assert_equal "a\nb\nconfidence: exact: nothing in it is estimated or missing\nnext: heap {\"pid\":7}", text
  end

  def test_a_long_text_comes_in_parts_that_name_the_next
    text = Array.new(1_000) { |number| "line #{number} of a thousand" }.join("\n")
    long = answer(text)
    parts = (1..5).map { |number| long.text(number) }
    lines = parts.uniq.flat_map { |part| part.lines(chomp: true).grep(/\Aline /) }

    assert_equal text.lines(chomp: true), lines
    parts.each { |part| assert_operator part.bytesize, :<=, 8_000 }
    assert_includes parts[0], "\n#{1_000 - parts[0].scan(/^line /).size} more lines: doctor {\"pid\":7,\"part\":2}\n"
    refute_match(/more lines/, parts.last)
  end

  def test_an_empty_text_has_one_part
    assert_match(/\A\nconfidence: /, answer("").text(2))
  end

  def test_a_line_that_is_too_long_is_cut
    both = answer("#{'X' * 7_000}\n#{'Y' * 7_000}\n#{'Z' * 10}")

    assert_equal([6_800, 6_800, 10], %w[X Y Z].map.with_index(1) { |letter, part| both.text(part).count(letter) })
    assert_operator answer("é" * 10_000).text(1).bytesize, :<=, 8_000
    assert_predicate answer("é" * 10_000).text(1), :valid_encoding?
  end

  def test_what_the_text_names_is_next
    text = <<~TEXT
      Run memscope heap --pid 7 --paths-to Shop::Order.
        memscope profile --pid 7 --backend=imports --seconds 30
        --gc, or `memscope report --pid 7 --mappings`, memscope purge --pid 7 trim
    TEXT

    assert_equal [["heap", { pid: 7, paths_to: "Shop::Order" }],
                  ["profile", { pid: 7, backend: "imports", seconds: 30 }],
                  ["report", { pid: 7, mappings: true }]], next_calls(text)
  end

  def test_the_same_question_is_not_next
    assert_equal [["heap", { pid: 7 }]], next_calls("memscope doctor --pid 7")
    assert_empty next_calls("memscope heap --pid 7, memscope heap --paths-to CLASS", tool: "heap", top: 5)
  end

  def test_the_first_process_of_a_list_is_next
    assert_equal [["doctor", { pid: 4711 }]], Answer.new("ps", {}, "  pid  RSS\n       MiB\n  4711  8.0\n", [])
                                                    .hints[:next].map(&:values)
  end

  def test_after_a_failure_comes_another_process_or_what_the_text_names
    assert_equal [["ps", {}]], next_calls("--pid -1: not allowed", readings: nil)
    assert_equal [["report", { pid: 7 }]], next_calls("try memscope report --pid 7", tool: "heap", readings: nil)
    assert_empty next_calls("no", tool: "ps", readings: nil)
    assert_empty Answer.new("heap", { pid: 7 }, "no process 7", nil, tools: ["heap"]).hints[:next]
  end

  def test_a_failure_has_no_lists
    assert_match(/\Alists above show at most 3 rows/, answer("", tool: "heap", top: 3).text(1).lstrip)
    assert_equal "no\nconfidence: none: there is no reading\nnext: ps {}",
                 answer("no", tool: "heap", readings: nil, top: -3).text(1)
  end

  def test_how_sure_an_answer_is
    ledger = Memscope.ledger
    verdict = Memscope.verdict

    assert_equal "estimates from samples, with their errors", answer("", tool: "profile").hints[:confidence]
    assert_equal "none: it is too early to judge", answer("", readings: [verdict]).hints[:confidence]
    assert_match(/\Aexact/, answer("", readings: [ledger]).hints[:confidence])
    assert_equal "none: there is no reading", answer("", readings: nil).hints[:confidence]
    assert_equal [true, nil], [answer("", readings: nil).failed, answer("", readings: []).failed || nil]
  end
end
