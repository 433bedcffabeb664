# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../../ext/memscope/record_structs"

# What each benchmark is measured against: the same work in C, compiled on the spot and called inside the very process
# that memscope reads, so that both see the same heap.
module Floor
  ENGINE = File.expand_path("../../ext/memscope/engine", __dir__)
  Comparison = Struct.new(:ratio, :subject_ns, :floor_ns)

  class << self
    # A function in floor/<name>.c, which may call the engine's functions in these rooms.
    def function(name, function, arguments, result, rooms: [])
      require "fiddle" # a gem from Ruby 4.0 on: only callers of this method need it
      library = (@libraries ||= {})[name] ||= Fiddle.dlopen(compile(name, rooms))
      Fiddle::Function.new(library[function], arguments, result)
    end

    # Compares two callables, each of which takes a count and returns the nanoseconds that this many calls took. Short
    # batches take turns and are compared pair by pair, so that a busy machine slows both alike.
    #
    # @return [Comparison] medians: of the pairs' ratios, and of the duration of one call of each, in nanoseconds
    def compare(subject, floor, count:, rounds: 301)
      pairs = Array.new(rounds) { [subject.call(count) / count.to_f, floor.call(count) / count.to_f] }
      Comparison.new(median(pairs.map { |ours, theirs| ours / theirs }), *pairs.transpose.map { |side| median(side) })
    end

    # If there is an even number of values, the mean of the two in the middle: either alone would be too low or too
    # high.
    def median(values)
      sorted = values.sort
      (sorted[(sorted.size - 1) / 2] + sorted[sorted.size / 2]) / 2.0
    end

    # The nanoseconds that a block takes; the block itself repeats its work.
    def time
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      yield
      Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start
    end

    # Prints one line of the results.
    def say(what, value, unit, goal) = puts("#{what.ljust(17)} #{value.round(2).to_s.rjust(7)} #{unit}  (goal #{goal})")

    private

    def compile(name, rooms)
      directory = Dir.mktmpdir("memscope")
      owner = Process.pid
      at_exit { FileUtils.remove_entry(directory) if Process.pid == owner }
      library = File.join(directory, "#{name}.so")
      RecordStructs.write(directory)
      sources = Dir["#{ENGINE}/{#{rooms.join(',')}}/*.c"]
      system("cc", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", "-I#{ENGINE}", "-I#{directory}",
             File.join(__dir__, "#{name}.c"), *sources, "-o", library, exception: true)
      library
    end
  end
end
