# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/show/report"
require "io/console"
require "pty"
require "stringio"

# The width of texts, and whether they have colour, follow the terminal if there is one.
class ReportDisplayTest < MemscopeTest
  EXECUTABLE = File.join(ChildProcess::ROOT, "exe", "memscope")
  # A terminal of 46 columns.
  class Terminal < StringIO
    def tty? = true
    def winsize = [24, 46]
  end

  def of(io, **variables)
    Memscope::Report::Display.of(io, { "TERM" => "xterm", **variables.transform_keys(&:name) }).to_h.except(:unicode)
  end

  def test_of_a_terminal
    assert_equal({ width: 46, color: true }, of(Terminal.new))
    assert_equal({ width: 46, color: false }, of(Terminal.new, NO_COLOR: "1"))
    assert_equal({ width: 46, color: true }, of(Terminal.new, NO_COLOR: ""))
    assert_equal({ width: 46, color: false }, of(Terminal.new, TERM: "dumb"))
    assert_equal({ width: 46, color: false }, of(Terminal.new, TERM: ""))
  end

  def test_of_anything_else
    assert_equal({ width: 80, color: false }, of(StringIO.new))
    assert_equal({ width: 80, color: false }, of(Object.new))
  end

  def test_columns
    assert_equal([60, 120], [Terminal, StringIO].zip(%w[60 120]).map { |io, set| of(io.new, COLUMNS: set)[:width] })
    assert_equal([40, 400], %w[3 9999].map { |set| of(StringIO.new, COLUMNS: set)[:width] })
    assert_equal([80, 80, 80], ["0", "wide", "-5"].map { |set| of(StringIO.new, COLUMNS: set)[:width] })
  end

  def test_the_commands_on_a_terminal
    shown = on_a_terminal("report", "--deep")
    plain = shown.gsub(/\e\[[\d;]*m/, "")

    assert_match(/\A(memscope report: .*\r\n)?\e\[1mmemscope \d/, shown)
    assert_operator plain.lines.grep(/MiB|%|[├└]/).map { |line| line.chomp.length }.max, :<=, 46, plain
    assert_includes on_a_terminal("ps"), "\e[1m"
    refute_includes on_a_terminal("ps", env: { "NO_COLOR" => "1" }), "\e["
    assert_match(/\e\[1m.*settings of/m, on_a_terminal("doctor", "--settings", "--", RbConfig.ruby, "-e", "1"))
  end

  private

  def on_a_terminal(*arguments, env: {})
    variables = { "LC_ALL" => "C.UTF-8", "TERM" => "xterm", "COLUMNS" => nil, "NO_COLOR" => nil, "RUBYOPT" => nil,
                  **env }
    command = ["sh", "-c", 'stty cols 46 && exec "$@"', "sh", *ChildProcess.ruby, EXECUTABLE, *arguments]
    output, input, pid = PTY.spawn(variables, *command)
    text = +"".b
    loop { text << output.readpartial(4096) }
  rescue EOFError, Errno::EIO
    Process.wait(pid)
    [output, input].each(&:close)
    text.force_encoding(Encoding::UTF_8)
  end
end
