# frozen_string_literal: true

require_relative "../test_helper"
require "etc"

# How far a profile of objects is from the truth in real processes with real garbage collections. The workload keeps
# known numbers of objects from lines that allocate all the time, in bursts, or by turns in a period as long as a window
# of samples, and from a line half of whose objects are dropped later.
#
# In a few runs, estimates are within five standard errors. In many (`rake battery:object_truth`), they are within one
# and three as often as the standard errors say, and right on average.
class ObjectTruthTest < MemscopeTest
  parallelize_me!

  SEEDS = Integer(ENV.fetch("MEMSCOPE_SEEDS", "2"))
  MANY = 100
  WORKLOAD = File.expand_path("../support/workloads/object_truth.rb", __dir__)
  SAMPLES = 30
  # The truth, an estimate, its error and its samples; nil: no sample, or too few for an estimate.
  Line = Struct.new(:name, :truth, :objects, :error, :samples) do
    def known? = samples.to_i >= SAMPLES

    def errors = (objects - truth).fdiv(error)

    # nil: unknown
    def relative = samples ? objects && (objects - truth).fdiv(truth) : -1.0
  end

  if SEEDS < MANY
    def test_estimates_are_within_five_errors
      lines = sessions.select(&:known?)

      refute_empty lines
      lines.each { |line| assert_operator line.errors.abs, :<=, 5, line }
    end
  else
    def test_estimates_are_as_far_from_the_truth_as_their_errors_say
      lines = sessions
      puts table(lines)
      known = lines.select(&:known?)

      lines.group_by(&:name).each { |name, of_name| assert_unbiased(name, of_name.map(&:relative)) }
      assert_includes 0.60..0.76, within(1, known)
      assert_operator within(3, known), :>=, 0.99
    end
  end

  private

  # @return [Array<Line>] of all seeds
  def sessions
    skip_under_sanitizer
    seeds = Queue.new((1..SEEDS).to_a).close
    Array.new(Etc.nprocessors) { Thread.new { Array.new(SEEDS) { (seed = seeds.pop) && lines(seed) } } }
         .flat_map(&:value).compact.flatten
  end

  def lines(seed)
    ran = ChildProcess.run_command(*ChildProcess.ruby, WORKLOAD, env: { "SEED" => seed.to_s })
    ran.json.flat_map { |session| session["lines"].map { |name, numbers| Line.new(name, *numbers) } }
  end

  # Lines with few samples count too: without them, those that were overestimated would be left.
  def assert_unbiased(name, errors)
    return if errors.include?(nil)

    average = mean(errors)
    deviation = Math.sqrt(mean(errors.map { |error| (error - average)**2 }) / errors.size)

    assert_operator average.abs, :<=, 4 * deviation, "#{name}: #{average} ± #{deviation}"
  end

  def within(errors, lines) = lines.count { |line| line.errors.abs <= errors }.fdiv(lines.size)

  def mean(numbers) = numbers.sum.fdiv(numbers.size)

  def table(lines)
    [RUBY_DESCRIPTION, *{ **lines.group_by(&:name), "all" => lines }.map { |name, all| row(name, all) }].join("\n")
  end

  def row(name, lines)
    known = lines.select(&:known?)
    average, one, three = [mean(lines.filter_map(&:relative)), within(1, known), within(3, known)].map do |share|
      "#{(100 * share).round(1)} %".rjust(7)
    end
    "#{name.ljust(7)} #{average} from the truth on average; of #{known.size} with #{SAMPLES} samples or more, " \
      "#{one} within 1 error, #{three} within 3"
  end
end
