# frozen_string_literal: true

require "io/console"
require "pty"
require_relative "listening"

# `memscope top` on real terminals. For tests that include Listening.
module Screens
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

    # The screen as soon as it matches. It may be incomplete.
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

  def screen(*arguments, env: {})
    Screen.new({ **environment, **env }, *arguments).tap { |screen| (@screens ||= []) << screen }
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
