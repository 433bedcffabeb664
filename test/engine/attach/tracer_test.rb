# frozen_string_literal: true

require "test_helper"
require "socket"

# The tracer's refusals: nothing is changed in a process that cannot be copied.
class TracerTest < Minitest::Test
  READY, VALUE, REFUSED, RAISED, ENDED = *0..4
  EXTENSION = $LOADED_FEATURES.grep(%r{/memscope/memscope\.so\z}).first

  def test_a_program_without_ruby_is_refused
    running("sleep", "100") do |pid|
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
    running(RbConfig.ruby, "-e", "puts; $stdout.flush; sleep", ready: true) do |pid|
      tracer = spawn("strace", "-qq", "-o", File::NULL, "-p", pid.to_s)
      sleep 0.01 until File.read("/proc/#{pid}/status")[/^TracerPid:\s*(\d+)/, 1].to_i.positive?

      assert_equal ["traced", pid.to_s, tracer.to_s, "strace"], refusal(pid)
    ensure
      Process.kill(:TERM, tracer)
      Process.wait(tracer)
    end
  end

  def test_a_pause_above_the_limit_is_refused_before_anything_stops
    running(RbConfig.ruby, "-e", "K = 'x' * (100 << 20); puts; $stdout.flush; sleep", ready: true) do |pid|
      name, refused, pause_ms, needed, = refusal(pid, pause_limit_ms: 1)

      assert_equal ["pause", pid.to_s], [name, refused]
      assert_operator pause_ms.to_i, :>, 1
      assert_operator needed.to_i, :>, 0
    end
  end

  def test_a_program_with_a_constant_of_the_same_name_is_refused
    running(RbConfig.ruby, "-W0", "-e", "Memscope = 1; puts; $stdout.flush; sleep", ready: true) do |pid|
      assert_equal ["so_refused", pid.to_s, "memscope.so", "Init_memscope raised"], refusal(pid)
      assert_match(/^TracerPid:\s*0$/, File.read("/proc/#{pid}/status"))
    end
  end

  private

  def running(*command, ready: false)
    reader, writer = IO.pipe
    pid = spawn(*command, out: writer)
    writer.close
    reader.gets if ready
    yield pid
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
    reader.close
  end

  def refusal(pid, pause_limit_ms: 1_000)
    native = Memscope.send(:const_get, :Native)
    socket = UNIXSocket.for_fd(native.open_copy(pid, EXTENSION, pause_limit_ms, 10_000, false, 0))
    kind, _zero, length = socket.read(16).unpack("LLQ")
    text = socket.read(length)

    assert_equal REFUSED, kind, text
    text.split("\n")
  ensure
    socket&.close
  end
end
