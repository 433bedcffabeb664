# frozen_string_literal: true

require "test_helper"
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

  def test_a_program_with_a_constant_of_the_same_name_is_refused
    running(RbConfig.ruby, "-W0", "-e", "Memscope = 1; puts; $stdout.flush; sleep") do |pid|
      assert_equal ["so_refused", pid.to_s, "memscope.so", "Init_memscope raised"], refusal(pid)
      assert_match(/^TracerPid:\s*0$/, File.read("/proc/#{pid}/status"))
    end
  end

  private

  def refusal(pid, pause_limit_ms: 1_000)
    outcome = Tracer.copy(pid, pause_limit_ms: pause_limit_ms)

    refute_nil outcome.refusal, outcome.inspect
    outcome.refusal
  end
end
