# frozen_string_literal: true

require "test_helper"
require_relative "../../support/traced_targets"

# Private copies of processes in all states: the answer is right, and the process does not notice.
class PrivateCopyTest < MemscopeTest
  include TracedTargets
  extend TracedTargets

  JEMALLOC = ChildProcess::ALLOCATORS.fetch(:jemalloc)
  NATIVE = "Memscope.const_get(:Native)"
  QUESTIONS = ["6 * 7", "Thread.main.alive?"].freeze
  ANSWERS = %w[42 true].freeze

  def setup
    skip_under_sanitizer # the processes are without it
  end

  for_each_target "a_process_that_waits_is_not_woken" do |target|
    TracedProgram.run_all("state", [*WAITS, *TIMED].zip, **target.program) do |programs|
      VISITS.times { programs.each_value { |program| assert_unchanged_by_a_copy(program, target) } }

      assert_unchanged_by_a_copy(programs.fetch("sleep_timed"), target) # in restart_syscall, since the first copy

      TIMED.each { |state| assert_match(/\Ain time/, programs[state].gets, state) }
      WAITS.each { |state| assert_empty programs[state].printed, state }
    end
  end

  # If each copy started a timeout anew, it would not end while there are copies.
  for_each_target "a_timeout_is_not_started_anew", TIMED do |target, state|
    TracedProgram.run("state", state, **target.program) do |program|
      copies = 0
      ended = program.await do
        target.copy(program, *QUESTIONS)
        copies += 1
        program.readable?
      end

      assert ended, "not after #{copies} copies"
      line = program.gets

      assert_match(/\Ain time/, line)
      TracedTargets.tell(target, state, line, copies)
    end
  end

  for_each_target "a_process_that_works", WORKS - ["ractor"] do |target, state|
    TracedProgram.run("state", state, **target.program) do |program|
      VISITS.times { assert_unchanged_by_a_copy(program, target, idle: false) }
    end
  end

  def test_under_jemalloc
    skip "there is no jemalloc" unless ChildProcess.run("", preload: JEMALLOC).err.empty?

    TracedProgram.run_all("state", [%w[sleep], %w[ten_busy_threads]], preload: JEMALLOC) do |programs|
      programs.each { |state, program| assert_unchanged_by_a_copy(program, idle: state == "sleep") }
    end
  end

  # A copy of a process with Ractors may wait for one that it does not have. Since Ruby 3.3, it always does.
  for_each_target "a_process_with_ractors" do |target|
    TracedProgram.run("state", "ractor", **target.program) do |program|
      outcome = target.copy(program, *QUESTIONS, deadline_ms: 5_000)

      if target.version < "3.3"
        assert_includes [ANSWERS, []], outcome.answers
      else
        assert_equal ["ractors", program.pid.to_s, "2"], outcome.refusal
      end

      assert_unharmed(program)
    end
  end

  def test_a_copy_that_runs_on_to_a_safe_point
    TracedProgram.run_all("state", [%w[sleep], %w[queue], %w[busy]]) do |programs|
      programs.each_value { |program| assert_unchanged_by_a_copy(program, idle: false, forward: true) }

      assert_empty(programs.values.map(&:printed).join)
    end
  end

  def test_a_process_that_waits_for_any_child_sees_none
    TracedProgram.run("waiter") do |program|
      3.times { assert_equal ANSWERS, Tracer.copy(program.pid, *QUESTIONS).answers }

      assert_unharmed(program)
      assert_empty program.printed
    end
  end

  def test_objects_that_another_thread_holds_are_reachable
    %w[0 2].each do |busy_threads|
      TracedProgram.run("held", busy_threads) do |program|
        outcome = Tracer.copy(program.pid, "#{NATIVE}.heap_graph(10, :name, 'Order', false, false, 20_000)")
        graph = JSON.parse(outcome.answers.first)

        assert_equal 500, graph.dig(":targets", ":count") || graph[":target_count"], graph.inspect[0, 500]
      end
    end
  end

  def test_what_others_see_of_the_process_takes_place_once
    TracedProgram.run("counts") do |program|
      10.times do |number|
        assert_equal ANSWERS, Tracer.copy(program.pid, *QUESTIONS, forward: number.even?).answers
      end

      assert_match(/\A[1-9]\d* \n/, program.finish)
    end
  end

  def test_the_reader_keeps_nothing
    TracedProgram.run("state", "sleep") do |program|
      GC.disable # which closes the files of earlier tests
      before = Dir.children("/proc/self/fd").size
      Tracer.copy(program.pid, *QUESTIONS)
      Tracer.copy(program.pid, *QUESTIONS, die_at: 30)

      assert_equal before, Dir.children("/proc/self/fd").size
      refute_includes TracedProgram.children(Process.pid).values, "Z"
    ensure
      GC.enable
    end
  end

  # The one makes one system call after the other, and the other waits for what only another thread can do.
  { works: "loop { Process.kill(0, 1) rescue 0 }", waits: "Queue.new.pop" }.each do |name, text|
    define_method("test_an_expression_that_#{name}_forever_ends_at_the_deadline") do
      TracedProgram.run("state", "join") do |program|
        began = Tracer.now

        assert_equal "copy_slow", Tracer.copy(program.pid, text, deadline_ms: 1500).refusal&.first
        assert_operator Tracer.now - began, :<, 10
        assert(program.await { program.children.empty? })
      end
    end
  end

  private

  # @param idle [Boolean] whether the process changes nothing itself
  def assert_unchanged_by_a_copy(program, target = ALL.first, idle: true, forward: false)
    descriptors = program.descriptors
    private_kb = program.private_kb
    outcome = target.copy(program, *QUESTIONS, forward: forward)

    assert_nil outcome.refusal
    assert_equal ANSWERS, outcome.answers
    assert_equal "1", outcome.cost&.fetch("reaped")
    assert_unharmed(program)
    assert_equal descriptors, program.descriptors
    assert(program.await { program.status("SigBlk") == "0" * 16 })
    # Less than a thousandth, or the pages of the stack that a signal frame takes.
    assert_in_delta private_kb, program.private_kb, [private_kb / 1000, 16].max if idle
  end

  def assert_unharmed(program)
    assert_predicate program, :alive?
    assert_equal "0", program.status("TracerPid")
    refute_includes program.children, "Z"
  end
end
