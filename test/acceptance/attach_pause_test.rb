# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/traced_targets"

# What a copy costs its process, beside what the process's own fork costs it: `rake battery:attach`.
class AttachPauseTest < MemscopeTest
  extend TracedTargets

  TURNS = Integer(ENV.fetch("MEMSCOPE_PAUSES", "10"))
  MEASURED = ENV.key?("MEMSCOPE_PAUSES")
  # Of the process, in MiB.
  SIZES = MEASURED ? [0, 60, 500] : [60]
  # Milliseconds by which the pause may be longer than a fork.
  MORE = 0.5

  def setup = skip_under_sanitizer

  def teardown = system("chrt", "-o", "-p", "0", Process.pid.to_s, %i[out err] => File::NULL)

  for_each_target "the_private_memory", SIZES do |target, size|
    with_program(target, size) do |program|
      before = program.uss_kb
      TURNS.times { copied(target, program) }
      after = program.uss_kb
      puts "#{name}: USS #{before} kB, #{after} kB after #{TURNS} copies" if MEASURED

      # A thousandth, or the pages of the stack that a signal frame takes.
      assert_in_delta before, after, [before / 1000, 16].max
    end
  end

  for_each_target "the_pause", MEASURED ? SIZES : [] do |target, size|
    with_program(target, size) do |program|
      forks, pauses = Array.new(TURNS) { [Float(program.ask("fork")), copied(target, program)] }.transpose
      puts "#{name}: own fork p50 #{quantile(forks, 0.5)} p90 #{quantile(forks, 0.9)} ms, " \
           "pause p50 #{quantile(pauses, 0.5)} p90 #{quantile(pauses, 0.9)} ms, #{TURNS} by turns"

      assert_operator quantile(pauses, 0.5), :<=, quantile(forks, 0.5) + MORE
    end
  end

  private

  # On a busy machine, as on an idle one: the process is stopped and continued five times for a copy, and must not wait
  # for a processor each time.
  def with_program(target, size, &)
    real_time = MEASURED && system("chrt", "-f", "-p", "1", Process.pid.to_s, %i[out err] => File::NULL)
    TracedProgram.run("forks", size.to_s, **target.program, before: real_time ? ["chrt", "-f", "1"] : [], &)
  end

  # @return [Float] the pause in milliseconds
  def copied(target, program)
    outcome = target.copy(program, "6 * 7")

    assert_equal %w[42], outcome.answers, outcome.inspect
    outcome.facts["pause_ns"].to_i / 1e6
  end

  def quantile(values, share) = values.sort[(values.size * share).floor].round(2)
end
