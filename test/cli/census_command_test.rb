# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/cli/cli"
require "stringio"

class CLICensusTest < MemscopeTest
  include Listening

  LEAK = "class Leaked; end; KEPT = Array.new(3_000) { Leaked.new }"
  GROW = "2_000.times { KEPT << Leaked.new }.nil?"

  def test_from_it_grows_to_the_class_in_two_commands
    process = listening(LEAK)
    file = File.join(@directory, "before.json")
    memscope("--pid", process.pid.to_s, "--gc", "--json", "--output", file)
    process.tell(GROW)

    assert_equal "false", process.gets
    said = memscope("--pid", process.pid.to_s, "--gc", "--since", file, "--top", "50")

    assert_match(/ \+2,000 +\+?\d[\d,]* +5,000  Leaked$/, said)
    assert_operator said.lines.map { |line| line.chomp.length }.max, :<=, 80
    refute_match(/counted\s+garbage too/i, said)
  end

  def test_groupings_and_json
    process = listening(LEAK)

    assert_match(/  slot bytes\n.*  40$/, memscope("--pid", process.pid.to_s, "--by", "slot_size"))
    assert_match(/\A````text\nmemscope .*\n````\n\z/m, memscope("--pid", process.pid.to_s, "--markdown"))
    census = Memscope::Census.from_json(memscope("--pid", process.pid.to_s, "--json"))

    assert_equal [process.pid, 3_000],
                 [census.pid, census.by(:class).find { |row| row.name == "Leaked" }.count]
  end

  # All memory of a process that shares it with no other is its own.
  def test_private_pages
    process = listening(LEAK)
    shown = memscope("--pid", process.pid.to_s, "--private")

    assert_match(/^  [\d,]+ objects on pages that no other process shares: /, shown)
    assert_match(/ 3,000 .* Leaked$/, shown)
    refute_includes memscope("--pid", process.pid.to_s), "shares"
  end

  def test_a_program_when_it_ends
    result = ChildProcess.run_command(*ChildProcess.ruby, "-rmemscope/cli/cli", "-e",
                                      "exit Memscope::CLI.run(ARGV)", "--", "census", "--gc", "--by", "class", "--top",
                                      "3", "--", *ChildProcess.ruby, "-e", "#{LEAK}; KEPT.each { |one| def one.x = 1 }")

    assert_predicate result, :success?, result
    assert_match(/after a garbage collection/, result.err)
    assert_match(/ \d+ others$/, result.err)
    assert_match(/  class\n/, result.err)
  end

  def test_wrong_arguments
    { %w[--by colour] => "memscope census: --by: given \"colour\", allowed: class, type, imemo, slot_size, age",
      %w[--top 0] => "memscope census: --top: given \"0\", allowed: a number from 1 to 10000",
      %w[--since /nowhere.json] => "memscope census: --since /nowhere.json: No such file or directory" }
      .each do |arguments, message|
        err = StringIO.new

        refute_equal 0, Memscope::CLI.run(["census", *arguments], out: StringIO.new, err: err)
        assert_equal message, err.string.chomp
      end
  end

  def test_no_contents_of_a_file_that_is_no_census
    file = File.join(@directory, "secrets")
    File.write(file, "password: 1234")
    err = StringIO.new

    assert_equal 74, Memscope::CLI.run(["census", "--since", file], out: StringIO.new, err: err)
    assert_match(/given 14 bytes of invalid or truncated JSON, allowed: the text of to_json$/, err.string)
    refute_includes err.string, "password"
  end

  def test_a_file_of_another_reading
    file = File.join(@directory, "ledger.json")
    File.write(file, Memscope.rss.to_json)
    err = StringIO.new

    assert_equal 74, Memscope::CLI.run(["census", "--since", file], out: StringIO.new, err: err)
    assert_match(/\Amemscope census: --since #{file}: given .*, allowed: .*Memscope::Census/, err.string)
  end

  private

  def memscope(*arguments)
    out = StringIO.new
    err = StringIO.new

    assert_equal 0, Memscope::CLI.run(["census", *arguments], out: out, err: err), err.string
    out.string
  end
end
