# frozen_string_literal: true

require "test_helper"
require_relative "../../support/traced_program"
require_relative "../../support/tracer"

# The tracer is killed at each of its calls of ptrace in turn: the process goes on, with its registers, as if nothing
# had been.
class TraceesTest < MemscopeTest
  parallelize_me!

  # Fewer calls of ptrace than a copy, or a text, takes; and more than either.
  MIN_CALLS = { copy: 100, evaluate: 80 }.freeze
  MAX_CALLS = 5000
  TEST_EXTENSION = File.join(ChildProcess::TEST_EXTENSION_DIRECTORY, "memscope_test.so")

  def setup
    skip_under_sanitizer
  end

  # What a tracer that is not killed says last.
  LAST = { copy: :cost, evaluate: :facts }.freeze
  STEPS = { ten: 10, one: 1 }.freeze

  # Of the tracer, at random moments. Whether there are enough of them is chance, so only the battery asks.
  KILLS = Integer(ENV.fetch("MEMSCOPE_KILLS", "0"))

  # The tracer of a copy, or of a text that is evaluated.
  { idle: ["--idle"], busy: [TEST_EXTENSION] }.to_a.product(%i[copy evaluate]).each do |(kind, arguments), way|
    STEPS.each do |name, step|
      test = define_method("test_at_every_#{name}_calls_of_#{way}_the_process_is_#{kind}") do
        TracedProgram.run("checksums", *arguments) { |program| assert_survives(program, way, step) }
      end
      only_in_full(test) if step == 1
    end

    next if KILLS.zero?

    define_method("test_at_random_moments_of_#{way}_the_process_is_#{kind}") do
      TracedProgram.run("checksums", *arguments) do |program|
        kill_at_random(program, (KILLS / 4.0).ceil) { |started| Tracer.send(way, program.pid, "1", &started) }
      end
    end
  end

  private

  # Within one of the last three lives of a tracer that was not killed: on a machine that was busy a moment ago, an
  # earlier one may have been many times as long, and hardly a moment of it would find a tracer.
  #
  # @yieldparam started [Proc, nil] to be called once the tracer runs
  def kill_at_random(program, times, &)
    signals = program.status("SigBlk")
    lives = Array.new(3) { seconds { yield nil } }
    tried = killed = 0
    while killed < times && (tried += 1) < 50 * times
      before = killed
      unkilled = seconds { killed += 1 if killed?(program.pid, rand * lives.sample, &) }
      lives = [*lives.drop(1), unkilled] if killed == before
    end
    puts "#{name}: #{killed} of #{tried} killed, within #{lives.max.round(2)} s"

    assert_equal times, killed
    assert(program.await { program.status("TracerPid") == "0" && program.alive? })
    assert program.await { (program.children - ["Z"]).empty? }, "a copy outlived its tracer"
    assert program.await { program.status("SigBlk") == signals }, "signals remain blocked" # until it has returned
    assert_results_right(program)
  end

  def seconds
    began = Tracer.now
    yield
    Tracer.now - began
  end

  # Kills the tracer of a process after this time.
  #
  # @return [Boolean] whether it was still there
  def killed?(pid, seconds)
    killer = nil
    yield(-> { killer = Thread.new { sleep(seconds) && Tracer.kill(pid) } })
    killer.value
  end

  def assert_survives(program, way, step)
    signals = program.status("SigBlk")
    kills = 0
    number = 1
    until (outcome = Tracer.send(way, program.pid, "1", die_at: number)).public_send(LAST.fetch(way))
      assert_nil outcome.refusal
      assert program.await { program.status("TracerPid") == "0" && program.alive? }, "call #{number}"
      kills += 1
      number += step

      assert_operator number, :<, MAX_CALLS
    end

    assert_operator kills, :>, MIN_CALLS.fetch(way) / step
    assert program.await { (program.children - ["Z"]).empty? }, "a copy outlived its tracer"
    assert program.await { program.status("SigBlk") == signals }, "signals remain blocked" # until it has returned
    assert_results_right(program)
  end

  def assert_results_right(program)
    rounds, wrong = program.finish.split.map(&:to_i)

    assert_equal 0, wrong
    assert_operator rounds, :>, 0 unless rounds.zero? && name.end_with?("idle")

    assert_predicate program.ended, :success?
  end
end
