# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/listening"
require_relative "../../support/screens"

# However memscope top ends or stops, the terminal is the shell's as before.
class CLITopTerminalTest < MemscopeTest
  include Listening
  include Screens

  # A character of a command line can be two cells wide; after a full line, the cursor is still on its last character.
  def test_a_line_that_is_too_wide_is_cut_and_not_continued
    top = screen
    top.wait(/q quit/)
    top.press("q")

    assert_left_clean(top, 0)
    assert_operator top.text.index("\e[?7l"), :<, top.text.index("memscope #{Memscope::VERSION}")
    assert_operator top.text.rindex("\e[?7h"), :>, top.text.rindex("q quit")
    refute_includes top.text, "\e[K\r\n"
  end

  def test_ctrl_z_gives_the_terminal_to_the_shell_until_it_goes_on
    top = screen("--pid", Process.pid.to_s)
    top.wait(/RSS$/)
    top.press("\x1a")
    top.wait(/1049l\z/)

    assert top.text.end_with?("\e[?25h\e[?1049l")
    top.wait_for("stop") { top.stopped? } # the terminal is restored a moment earlier
    drawn = top.text.size
    top.signal(:CONT)
    top.wait_for("new frame") { top.text.size > drawn + 500 }
    top.wait(/RSS$/)
    top.press("q")

    assert_left_clean(top, 0)
  end

  { INT: 130, TERM: 143, HUP: 129 }.each do |signal, status|
    define_method("test_a_signal_#{signal}_leaves_the_terminal_clean") do
      top = screen("--pid", Process.pid.to_s)
      top.wait(/RSS$/)
      top.signal(signal)

      assert_left_clean(top, status)
    end
  end

  def test_an_exception_leaves_the_terminal_clean
    broken = File.join(@directory, "broken.rb")
    File.write(broken, <<~RUBY)
      require "memscope/cli/cli"
      Memscope::CLI::TopCommand
      Memscope::CLI::Top::View.prepend(Module.new { def add(frame) = frame[:rows].any? ? raise("broken") : super })
    RUBY
    options = [*ChildProcess::LOAD_PATH.map { |path| "-I#{path}" }, "-r#{broken}"].join(" ")
    top = screen("--pid", Process.pid.to_s, env: { "RUBYOPT" => options })

    assert_left_clean(top, 1)

    assert_match(/\e\[\?1049l.*broken.*RuntimeError/m, top.ending)
  end
end
