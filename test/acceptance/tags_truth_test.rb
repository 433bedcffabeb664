# frozen_string_literal: true

require_relative "../test_helper"
require "etc"

# Five endpoints under 16 threads, one of which keeps objects: it is the first row, and its estimate is off by no more
# than its error says; the estimates of the others are within their errors of 0. In one process, or by rake battery:tags
# in many.
class TagsTruthTest < MemscopeTest
  parallelize_me!

  SEEDS = Integer(ENV.fetch("MEMSCOPE_SEEDS", "1"))
  MANY = 40
  # Of many rows, some are off by over three standard errors, none by over five.
  ERRORS = SEEDS < MANY ? 5 : 3
  WORKLOAD = File.expand_path("../support/workloads/tags.rb", __dir__)
  KEPT = [1, 3].freeze
  # A row of one reading ("whole", or "later" for the time after the cache was full); `retained` is nil for few samples.
  Found = Struct.new(:reading, :place, :name, :truth, :retained, :error) do
    def errors = error.zero? ? (retained - truth) : (retained - truth).fdiv(error)

    def right? = retained.nil? || errors.abs <= ERRORS
  end

  def test_the_leak_comes_first
    found = runs
    puts table(found) if SEEDS >= MANY
    leaks, others = found.partition { |one| one.name == "/leak" }

    assert_equal [0], leaks.map(&:place).uniq
    assert_right 0.99, others
    assert_right 0.99, leaks
    refute_empty leaks.select(&:retained)
    assert_includes 0.60..0.76, within_one(leaks) if SEEDS >= MANY
  end

  private

  # Of a few rows, one may be wrong.
  def assert_right(share, rows)
    least = [share * rows.size, SEEDS < MANY ? rows.size - 1 : rows.size].min

    assert_operator rows.count(&:right?), :>=, least, rows.reject(&:right?)
  end

  # @return [Array<Found>] of all seeds
  def runs
    skip_under_sanitizer
    seeds = Queue.new((1..SEEDS).to_a.product(KEPT)).close
    Array.new(Etc.nprocessors) { Thread.new { Array.new(SEEDS * KEPT.size) { (one = seeds.pop) && found(*one) } } }
         .flat_map(&:value).compact.flatten
  end

  def found(seed, kept)
    ran = ChildProcess.run_command(*ChildProcess.ruby, WORKLOAD, env: { "SEED" => seed.to_s, "KEPT" => kept.to_s })
    ran.json.flat_map do |reading, rows|
      rows.each_with_index.map { |row, place| Found.new(reading, place, *row) }
    end
  end

  def within_one(leaks)
    known = leaks.select(&:retained)
    known.count { |one| one.errors.abs <= 1 }.fdiv(known.size)
  end

  def table(found)
    found.group_by(&:name).map do |name, all|
      known = all.select(&:retained)
      share = "; #{(100 * within_one(all)).round} % of them within one error" if known.any?
      "#{name.ljust(8)} #{all.count(&:right?)} of #{all.size} right; #{known.size} with an estimate#{share}"
    end.join("\n")
  end
end
