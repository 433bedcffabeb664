# frozen_string_literal: true

require "test_helper"
require "tempfile"
require_relative "../../support/bystander"
require_relative "../../support/tracer"

# The tracer's refusals: nothing is changed in a process that cannot be copied.
class TracerTest < Minitest::Test
  include Bystander

  def test_a_program_without_ruby_is_refused
    running("sleep", "100", ready: false) do |pid|
      assert_equal ["no_ruby", pid.to_s], refusal(pid)
      assert_match(/^TracerPid:\s*0$/, File.read("/proc/#{pid}/status"))
    end
  end

  def test_a_process_that_has_ended_is_refused
    pid = spawn("true")
    Process.wait(pid)

    assert_equal ["ended", pid.to_s], refusal(pid)
  end

  def test_a_process_that_is_traced_is_refused_with_its_tracer
    running(RbConfig.ruby, "-e", "puts; $stdout.flush; sleep") do |pid|
      tracer = spawn("strace", "-qq", "-o", File::NULL, "-p", pid.to_s)
      sleep 0.01 until File.read("/proc/#{pid}/status")[/^TracerPid:\s*(\d+)/, 1].to_i.positive?

      assert_equal ["traced", pid.to_s, tracer.to_s, "strace"], refusal(pid)
    ensure
      Process.kill(:TERM, tracer)
      Process.wait(tracer)
    end
  end

  def test_a_pause_above_the_limit_is_refused_before_anything_stops
    running(RbConfig.ruby, "-e", "K = 'x' * (100 << 20); puts; $stdout.flush; sleep") do |pid|
      name, refused, pause_ms, needed, = refusal(pid, pause_limit_ms: 1)

      assert_equal ["pause", pid.to_s], [name, refused]
      assert_operator pause_ms.to_i, :>, 1
      assert_operator needed.to_i, :>, 0
    end
  end

  # 6,000 mappings of small stacks take longer to copy than their pages.
  def test_many_mappings_count_in_the_predicted_pause
    fibers = "K = Array.new(3_000) { Fiber.new { Fiber.yield }.tap(&:resume) }; puts; $stdout.flush; sleep"
    running(RbConfig.ruby, "-e", fibers) do |pid|
      name, _refused, pause_ms, = refusal(pid, pause_limit_ms: 1)

      assert_equal "pause", name
      assert_operator pause_ms.to_i, :>=, 24
    end
  end

  def test_a_program_with_a_constant_of_the_same_name_is_refused
    running(RbConfig.ruby, "-W0", "-e", "Memscope = 1; puts; $stdout.flush; sleep") do |pid|
      assert_equal ["so_refused", pid.to_s, "memscope.so", "Init_memscope raised"], refusal(pid)
      assert_match(/^TracerPid:\s*0$/, File.read("/proc/#{pid}/status"))
    end
  end

  # Held by a pidfd and the start time from before the seize, which is looked at again after it. Only files of the
  # kernel are opened, and none of the target's.
  def test_the_target_is_held_and_no_file_of_it_is_opened
    running(RbConfig.ruby, "-e", "puts; $stdout.flush; sleep") do |pid|
      calls = traced_calls("p Tracer.copy(#{pid}, '1').answers")
      held = calls.index { |call| call.start_with?("pidfd_open(#{pid}") }
      seized = calls.index { |call| call.start_with?("ptrace(PTRACE_SEIZE, #{pid}") }
      opened = calls[held..].grep(/\Aopen/).map { |call| call[/"([^"]*)"/, 1] }
      looks = calls.each_index.select { |index| calls[index].include?(%("/proc/#{pid}/stat")) }

      assert_operator looks.find { |index| index > held }, :<, seized
      assert_operator looks.last, :>, seized
      assert_empty opened.grep_v(%r{\A/(?:proc/|sys/fs/cgroup)})
    end
  end

  # A reader that is interrupted leaves no copy behind.
  def test_the_copy_ends_with_its_reader
    running(RbConfig.ruby, "-e", "puts; $stdout.flush; sleep") do |pid|
      socket = open_copy(pid, 60_000, 60_000)
      socket.read(socket.read(16).unpack("LLQ").last)
      socket.write([8].pack("Q"), "loop { }")
      sleep 0.01 until children(pid).any? { |child| File.read("/proc/#{child}/stat")[/\) (\w)/, 1] == "R" }
      socket.close

      assert(await { children(pid).empty? })
    end
  end

  def test_a_reader_that_receives_nothing_does_not_keep_the_copy
    running(RbConfig.ruby, "-e", "puts; $stdout.flush; sleep") do |pid|
      socket = open_copy(pid, 1000, 500)
      text = "'x' * 1_000_000"
      socket.write([text.bytesize].pack("Q"), text)

      assert(await { children(pid).any? })
      assert(await { children(pid).empty? })
    ensure
      socket&.close
    end
  end

  private

  def await
    deadline = Tracer.now + 30
    sleep 0.01 until (holds = yield) || Tracer.now > deadline
    holds
  end

  def children(pid) = File.read("/proc/#{pid}/task/#{pid}/children").split

  # A socket to the tracer of a copy.
  def open_copy(pid, pause_limit_ms, deadline_ms)
    native = Memscope.send(:const_get, :Native)
    UNIXSocket.for_fd(native.open_copy(pid, Tracer::EXTENSION, pause_limit_ms, deadline_ms, false, 0, nil))
  end

  # The system calls of the tracer that a program starts.
  def traced_calls(program)
    Tempfile.create("calls") do |file|
      system("strace", "-f", "-qq", "-o", file.path, "-e", "trace=openat,openat2,open,pidfd_open,ptrace", RbConfig.ruby,
             "-I#{ChildProcess::ROOT}/lib", "-r#{ChildProcess::ROOT}/test/support/tracer", "-e", program,
             out: File::NULL, exception: true)
      file.readlines.map { |line| line[/\d+ +(.*)/, 1] }
    end
  end

  def refusal(pid, pause_limit_ms: 1_000)
    outcome = Tracer.copy(pid, pause_limit_ms: pause_limit_ms)

    refute_nil outcome.refusal, outcome.inspect
    outcome.refusal
  end
end
