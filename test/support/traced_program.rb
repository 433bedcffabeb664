# frozen_string_literal: true

require "io/wait"
require_relative "child_process"

# A Ruby program that has not loaded memscope, in a process group of its own, as others see it from outside.
class TracedProgram
  WORKLOADS = File.expand_path("workloads/traced", __dir__)
  # Seconds in which it must start, or end.
  PATIENCE = 120

  # The program does not do what it should.
  class Failure < StandardError; end

  attr_reader :pid

  # Starts a program of WORKLOADS, which prints "ready", and ends it after the block.
  def self.run(name, *arguments, **options)
    program = new(name, *arguments, **options)
    yield program.await_ready
  ensure
    program&.stop
  end

  # Starts one for each list of arguments, in parallel. Yields them by the last argument.
  def self.run_all(name, lists, **options)
    programs = lists.to_h { |list| [list.last, new(name, *list, **options)] }
    programs.each_value(&:await_ready)
    yield programs
  ensure
    programs&.each_value(&:stop)
  end

  # The children of a process and the state of each.
  #
  # @return [Hash{Integer => String}]
  def self.children(pid)
    Dir["/proc/#{pid}/task/*/children"].flat_map { |path| File.read(path).split }.to_h do |child|
      [child.to_i, File.read("/proc/#{child}/stat")[/(?<=\) )\w/]]
    end
  rescue Errno::ENOENT, Errno::ESRCH
    retry # a child has just ended
  end

  # @param before [Array<String>] a command that becomes the program or, if it is nested, starts it as its only child
  # @param ruby [Array<String>] the command of its Ruby
  def initialize(name, *arguments, ruby: ChildProcess.ruby, preload: nil, env: {}, before: [], nested: false)
    @nested = nested
    @output, written = IO.pipe
    @leader = spawn(ChildProcess.environment(preload, env), *before, *ruby, File.join(WORKLOADS, "#{name}.rb"),
                    *arguments, in: unwritten, out: written, pgroup: true)
    @pid = @leader
    written.close
  end

  def await_ready
    line = gets
    raise Failure, "not ready: #{line.inspect}" unless line == "ready\n"

    @pid = TracedProgram.children(@leader).keys.first if @nested
    self
  end

  # @return [String, nil] the next line that it prints
  def gets
    raise Failure, "process #{@pid} prints nothing" unless @output.wait_readable(PATIENCE)

    @output.gets
  end

  # @return [Boolean] whether it has printed what nobody has read
  def readable? = !@output.wait_readable(0).nil?

  # @return [String, nil] the next line that it prints after it was sent this one
  def ask(line)
    @input.puts(line)
    gets
  end

  # @return [String] what it has printed and nobody has read
  def printed
    @output.read_nonblock(1 << 16)
  rescue IO::WaitReadable, EOFError
    ""
  end

  # @return [String] of a line in /proc/PID/status
  def status(field) = File.read("/proc/#{@pid}/status")[/^#{field}:\s*(.*)$/, 1]

  def alive? = status("State").match?(/\A[RSD]/)

  # The signals that each thread blocks.
  def blocked_signals
    Dir["/proc/#{@pid}/task/*/status"].to_h do |path|
      [path[%r{\d+(?=/status)}], File.read(path)[/^SigBlk:\s*(\h+)/, 1]]
    end
  end

  def descriptors = Dir.children("/proc/#{@pid}/fd").sort

  # @return [Integer] kB of pages of its own
  def private_kb = File.read("/proc/#{@pid}/smaps_rollup")[/^Private_Dirty:\s*(\d+)/, 1].to_i

  # @return [Integer] kB of pages that no other process shares
  def uss_kb
    File.read("/proc/#{@pid}/smaps_rollup").scan(/^Private_(?:Clean|Dirty):\s*(\d+)/).flatten.sum(&:to_i)
  end

  # @return [Array<String>] the state of each of its children
  def children = TracedProgram.children(@pid).values

  # Waits until a condition holds.
  #
  # @return [Boolean] whether it did
  def await(patience = PATIENCE)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
    until (holds = yield) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.005
    end
    holds
  end

  # Sends a signal, on which it prints its last line and ends.
  #
  # @return [String]
  def finish(signal = :TERM)
    Process.kill(signal, @pid)
    gets.to_s.tap { ended }
  end

  # @return [Process::Status] once it has ended
  def ended
    await { @ended ||= Process.wait2(@leader, Process::WNOHANG)&.last }
    @ended or raise Failure, "process #{@leader} does not end"
  end

  def stop
    Process.kill(:KILL, -@leader)
  rescue Errno::ESRCH
    nil # it has ended
  ensure
    Process.wait(@leader) unless @ended
    [@output, @input].compact.each(&:close)
  end

  private

  # An input that nobody writes to.
  def unwritten
    reader, @input = IO.pipe
    reader
  end
end
