# frozen_string_literal: true

require "test_helper"
require_relative "../../support/bystander"
require_relative "../../support/traced_targets"

# A text that a live process evaluates at its next safe point.
class PostponedTextTest < MemscopeTest
  include Bystander
  include TracedTargets
  extend TracedTargets

  # A shared thread name would let a second text's memory be unmapped before its job has run.
  def test_texts_run_in_turn_also_while_threads_of_earlier_ones_live
    running("4.times { Thread.new { loop { Array.new(100) { 'a' * 50 } } } }; ready.call; Process.wait(spawn('sleep 1'))
             puts 'waited'; sleep") do |pid, output|
      3.times { assert Tracer.evaluate(pid, "puts 'ran'; sleep").facts }

      assert_equal %w[ran ran ran waited], Array.new(4) { output.gets.chomp }.sort
      assert_unchanged pid
    end
  end

  for_each_target "a_process_that_waits_is_not_woken" do |target|
    TracedProgram.run_all("state", [*WAITS, *TIMED].zip, **target.program) do |programs|
      VISITS.times { programs.each_value { |program| assert_evaluates(program) } }
      lines = programs.transform_values { |program| Array.new(VISITS) { program.gets.chomp } }

      TIMED.each do |state|
        in_time, *lines[state] = [*lines[state], programs[state].gets.chomp].sort

        assert_match(/\Ain time/, in_time, state)
      end
      assert_equal [["ran"] * VISITS], lines.values.uniq
      assert_empty programs.values.map(&:printed).join
    end
  end

  # If each visit started a timeout anew, it would not end while there are visits.
  for_each_target "a_timeout_is_not_started_anew", TIMED do |target, state|
    TracedProgram.run("state", state, **target.program) do |program|
      lines = []
      ended = program.await do
        assert_evaluates(program)
        lines << program.gets
        lines.last.start_with?("in time")
      end

      assert ended, "not after #{lines.size} visits"
      assert_equal ["ran\n"], lines.uniq - [lines.last]
      TracedTargets.tell(target, state, lines.last, lines.size)
    end
  end

  for_each_target "a_process_that_works", WORKS do |target, state|
    TracedProgram.run("state", state, **target.program) do |program|
      VISITS.times do
        assert_evaluates(program)
        assert_equal "ran\n", program.gets
      end
    end
  end

  # All Ractors share their postponed jobs. Those that collect closed files take each job that they find, until the main
  # thread, in C without the GVL at first, is quick enough.
  def test_a_text_that_another_ractor_takes_is_evaluated_once_in_the_main_one
    running("require 'zlib'; Warning[:experimental] = false
             Ractor.new { loop { File.open('/dev/null'); GC.start(full_mark: false) } }
             ready.call; Zlib::Deflate.deflate(Random.bytes(1 << 20) * 10, 9); sleep") do |pid, output|
      outcome = Tracer.evaluate(pid, "puts ::Ractor.current == ::Ractor.main")

      assert_nil outcome.refusal
      assert_equal "true\n", output.gets
      assert Tracer.evaluate(pid, "puts 'next'").facts
      assert_equal "next\n", output.gets
      assert_unchanged pid
    end
  end

  # The text is withdrawn, so it does nothing later either.
  def test_a_process_without_a_safe_point_is_refused_and_left_alone
    running("ready.call; loop { puts 'alive'; sleep 0.01 }") do |pid, output|
      Process.kill(:STOP, pid)
      outcome = Tracer.evaluate(pid, "puts 'ran'", deadline_ms: 200)

      assert_equal "no_safe_point", outcome.refusal.first
      assert_match(/\A\w+ \(libc\..*\)\z|\Alib\S+\+0x\h+\z/, outcome.refusal.last)
      assert stops?(pid) # as it was: it stops anew when its tracer leaves
      Process.kill(:CONT, pid)
      lines = Array.new(20) { output.gets.chomp }

      assert_equal ["alive"], lines.uniq
      assert_unchanged pid
    end
  end

  private

  def running(program, &)
    super(RbConfig.ruby, "-e", "$stdout.sync = true; ready = -> { puts 'ready' }; #{program}", &)
  end

  def stops?(pid)
    2000.times.any? { File.read("/proc/#{pid}/status").match?(/^State:\s*T/) || (sleep(0.005) && false) }
  end

  def assert_evaluates(program)
    assert Tracer.evaluate(program.pid, "puts 'ran'").facts
    assert_unchanged program.pid
  end

  def assert_unchanged(pid)
    status = File.read("/proc/#{pid}/status")

    assert_match(/^TracerPid:\s*0$/, status)
    assert_match(/^SigBlk:\s*0+$/, status)
  end
end
