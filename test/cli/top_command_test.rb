# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require_relative "../support/screens"

# memscope top on a real terminal.
class CLITopTest < MemscopeTest
  include Listening
  include Screens

  def test_rows_keys_and_sizes
    process = listening("held = Array.new(100_000) { 'x' * 200 }; held = nil")
    top = screen("--pid", process.pid.to_s)
    text = top.wait(/^ +[\d,.]+ .*█? +RSS$.*^q quit/m)

    assert_match(/\Amemscope \S+   pid #{process.pid} ruby #{RUBY_VERSION} \w+ serves malloc$/, text)
    numbers = text.scan(/^ +([\d,]+\.\d)/).flatten.map { |number| number.delete(",").to_f }

    assert_equal numbers.sort.reverse, numbers, "the sum, then the largest first"
    assert_in_delta numbers.first, numbers.drop(1).sum, 1.0
    top.wait(/[▁▂▃▄▅▆▇█]{3,}  RSS/)

    [[10, 40], [3, 20], [1, 1], [40, 120]].each { |lines, columns| assert_fits(top, lines, columns) }
    top.press("q")

    assert_left_clean(top, 0)
  end

  def test_the_death_of_what_it_watches
    process = listening
    top = screen("--pid", process.pid.to_s)
    top.wait(/RSS$/)
    Process.kill(:KILL, process.pid)
    top.wait(/RSS$.*^there is no process #{process.pid}. These are its last numbers$/m)
    top.press("q")

    assert_left_clean(top, 0)
  end

  def test_one_that_is_stopped_holds_up_no_key
    process = listening
    top = screen("--pid", process.pid.to_s)
    top.wait(/RSS$/)
    Process.kill(:STOP, process.pid)
    sleep 0.3
    top.press("q")

    assert_left_clean(top, 0)
  ensure
    Process.kill(:CONT, process.pid)
  end

  def test_from_outside_and_all
    process = start(requires: [])
    top = screen("--pid", process.pid.to_s)
    top.wait(/kernel's view only \(process does not listen\).*anonymous \(heap, stacks\)$/m)
    top.press("\x03")

    assert_left_clean(top, 130)
    top = screen
    top.resize(200, 80) # room for as many other processes as there may be

    top.wait(/^.* +#{process.pid} \S+ +#{Regexp.escape(RbConfig.ruby[0, 10])}/) # commands are cut at the edge
    top.press("q")

    assert_left_clean(top, 0)
  end

  # Characters of two columns, and some of none: the terminal cuts what does not fit.
  def test_wide_characters
    process = start("$0 = 'ruby: ' + '記憶體e\u0301🔥' * 40", requires: [])
    top = screen
    top.resize(200, 80)
    top.wait(/ #{process.pid} .*記憶體e\u0301🔥記.*^q quit/m)

    assert_match(/ #{process.pid} .*ruby: (記憶體e\u0301🔥){40}$/, memscope_ps)
    assert_match(/ #{process.pid} .*ruby: [?e]+\z/, memscope_ps("LC_ALL" => "C")[/^ *#{process.pid} .*/])
    top.press("q")

    assert_left_clean(top, 0)
  end

  def test_no_process
    gone = Process.spawn("true").tap { |pid| Process.wait(pid) }
    top = screen("--pid", gone.to_s)
    top.wait(/^there is no process #{gone}/)
    top.press("q")

    assert_left_clean(top, 0)
  end

  def test_no_terminal
    ran = ChildProcess.run("exit Memscope::CLI.run(%w[top])", requires: ["memscope/cli/cli"])

    assert_equal [64, "memscope top: needs a terminal. Without one, use memscope ps, or memscope report --pid N\n"],
                 [ran.status.exitstatus, ran.err]
    ran = ChildProcess.run("exit Memscope::CLI.run(%w[top --every 0])", requires: ["memscope/cli/cli"])

    assert_equal "memscope top: --every: given \"0\", allowed: a number of seconds above 0, up to 86400\n",
                 ran.err
  end

  private

  def memscope_ps(variables = {})
    ChildProcess.run("exit Memscope::CLI.run(%w[ps])", requires: ["memscope/cli/cli"],
                                                       env: { **environment, "LC_ALL" => "C.UTF-8", **variables }).out
                .force_encoding("UTF-8")
  end

  def assert_fits(top, lines, columns)
    top.resize(lines, columns)
    top.wait_for("frame that fits #{lines} lines of #{columns} columns") do
      shown = top.whole_lines
      shown.size.between?([lines, 5].min, lines) && shown.map(&:length).max <= columns
    end
  end
end
