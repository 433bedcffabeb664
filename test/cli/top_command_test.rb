# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "io/console"
require "pty"

# memscope top on a real terminal.
class CLITopTest < MemscopeTest
  include Listening

  # A terminal with a shell that prints the terminal's settings before and after.
  class Screen
    attr_reader :text

    def initialize(environment, *arguments)
      command = [*ChildProcess.ruby, File.join(ChildProcess::ROOT, "exe", "memscope"), "top", "--every", "0.1",
                 *arguments]
      script = 'trap : INT TERM; stty -g; "$@"; echo "status $?"; stty -g'
      @output, @input, @pid = PTY.spawn({ "LC_ALL" => "C.UTF-8", **environment }, "sh", "-c", script, "sh", *command)
      resize(24, 80)
      @text = +""
      @thread = Thread.new { read }
    end

    def resize(lines, columns)
      @output.winsize = [lines, columns]
    end

    def press(key) = @input.write(key)

    # The current screen, or as much of it as has arrived.
    def lines = split(frames.last)

    # The last complete screen: the next one has begun.
    def whole_lines = split(frames[-2])

    # The screen as soon as it matches; it may be incomplete.
    def wait(pattern)
      wait_for(pattern.inspect) { lines.join("\n").then { |shown| shown if shown.match?(pattern) } }
    end

    def wait_for(what)
      deadline = now + Listening::PATIENCE
      until (found = yield)
        raise Minitest::Assertion, "no #{what}:\n#{lines.join("\n")}" if now > deadline

        sleep 0.02
      end
      found
    end

    # All output, once the shell has ended.
    def ending
      raise "it goes on: #{lines.join("\n")}" unless @thread.join(Listening::PATIENCE)

      @text.dup.force_encoding("UTF-8")
    end

    def signal(name) = Process.kill(name, program)

    # @return [Boolean] whether the program has been stopped, as by Ctrl-Z
    def stopped? = File.read("/proc/#{program}/stat")[/.*\) (\S)/m, 1] == "T"

    def close
      [@input, @output].each(&:close)
      Process.kill(:KILL, @pid)
    rescue SystemCallError
      nil
    ensure
      Process.wait(@pid)
      @thread.join
    end

    private

    # The pid of the program that the shell runs.
    def program = Integer(File.read("/proc/#{@pid}/task/#{@pid}/children").split.first)

    def frames = @text.dup.force_encoding("UTF-8").scrub.split("\e[H")

    def split(frame) = frame.to_s.split("\r\n").map { |line| plain(line) }

    def plain(line) = line.gsub(/\e\[[KJ]/, "")

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def read
      loop { @text << @output.readpartial(4096) }
    rescue SystemCallError, IOError
      nil # the terminal is gone
    end
  end

  def teardown
    @screens&.each(&:close)
    super
  end

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
    top.wait(/RSS$.*^there is no process #{process.pid}; these are its last numbers$/m)
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

  def test_no_process
    gone = Process.spawn("true").tap { |pid| Process.wait(pid) }
    top = screen("--pid", gone.to_s)
    top.wait(/^there is no process #{gone}/)
    top.press("q")

    assert_left_clean(top, 0)
  end

  def test_no_terminal
    ran = ChildProcess.run("exit Memscope::CLI.run(%w[top])", requires: ["memscope/cli/cli"])

    assert_equal [64, "memscope top: needs a terminal; instead, use memscope ps, or memscope report --pid N\n"],
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

  def screen(*arguments, env: {})
    Screen.new({ **environment, **env }, *arguments).tap { |screen| (@screens ||= []) << screen }
  end

  def assert_fits(top, lines, columns)
    top.resize(lines, columns)
    top.wait_for("frame that fits #{lines} lines of #{columns} columns") do
      shown = top.whole_lines
      shown.size.between?([lines, 5].min, lines) && shown.map(&:length).max <= columns
    end
  end

  # The terminal has its old settings, its cursor and its normal screen, and the shell continues.
  def assert_left_clean(top, status)
    before, *, after = top.ending.lines
    left = top.text.b.split("\e[?25h\e[?1049l".b).last.to_s

    assert_equal before, after
    assert_match(/^status #{status}\r$/, left)
    refute_match(/\e\[(\?|[HJK])/, left)
  end
end
