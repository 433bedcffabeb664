# frozen_string_literal: true

require "monitor"
require_relative "measurement"

module Memscope
  # Whether a block allocates an allowed number of objects, in total and of given classes.
  #
  #   check = Memscope::AllocationCheck.run({ objects: 0..12, String => 0..3 }) { parse(line) }
  #   check.passed?        # => false
  #   puts check           # what it allocates, by class and by line
  #
  # The block runs twice, in this process. Only the second run counts, since all later runs are like it: the first run
  # loads code, fills Ruby's inline caches, and memoizes.
  class AllocationCheck
    # Objects cannot be counted by class here. The message names the reason.
    class Unavailable < StandardError; end

    # Matches the names of internal objects, which no Ruby code can reach, and whose counts differ between Rubies.
    INTERNAL = /\A(?:imemo_|T_)/
    # How many rows each list has at most.
    ROWS = 10
    # Only one measurement runs at a time; others, such as those of tests in parallel threads, wait.
    LOCK = Monitor.new
    private_constant :INTERNAL, :ROWS, :LOCK

    class << self
      # @param limits [Hash{Symbol, Module, String => Integer, Range<Integer>}] for a class with a name, or for :objects
      #   (all classes), how many objects the block may allocate; an Integer means exactly that many. Internal objects
      #   do not count. The block must not create a Ractor
      # @yield twice
      # @return [AllocationCheck]
      # @raise [ArgumentError] for an invalid limit, or without a block
      # @raise [Unavailable] if this Ruby cannot count objects by class
      # @raise [Measurement::Unavailable] if the program itself measures or profiles objects
      def run(limits, &block)
        raise ArgumentError, "Memscope::AllocationCheck.run: no block given" unless block

        check(limits)
        measurement = LOCK.synchronize do
          yield
          Measurement.take(&block)
        end
        raise Unavailable, measurement.reasons[:classes] unless measurement.classes

        new(limits, measurement)
      end

      private

      def check(limits)
        refuse("limits", limits, "a Hash of one limit or more") unless limits.is_a?(Hash) && limits.any?

        limits.each do |what, limit|
          known = what == :objects || what.is_a?(String) || (what.is_a?(Class) && named?(what))
          refuse("limits", what, ":objects, a class with a name, the name of a class") unless known
          refuse(what.inspect, limit, "an Integer, 0 or more, or a Range of these") unless limit?(limit)
        end
      end

      # Objects are counted by their class's name. Objects of an anonymous class, or of a class in an anonymous module,
      # count under another name, so the count for the class itself would always be 0.
      def named?(known) = Module.instance_method(:name).bind_call(known)&.start_with?("#") == false

      def limit?(limit)
        bounds = limit.is_a?(Range) ? [limit.begin, limit.end].compact : [limit]
        bounds.any? && bounds.all? { |bound| bound.is_a?(Integer) && !bound.negative? }
      end

      def refuse(what, given, allowed) = Field.refuse("Memscope::AllocationCheck.run: #{what}", given, allowed)
    end

    # @return [Measurement] of the second run
    attr_reader :measurement

    # @api private
    def initialize(limits, measurement)
      @limits = limits
      @measurement = measurement
      freeze
    end

    # @return [Boolean]
    def passed? = exceeded.empty?

    # @return [Hash{Symbol, Module, String => Integer}] how many objects were allocated, for each limit that was not met
    def exceeded
      @limits.keys.to_h { |what| [what, allocated(what)] }.reject { |what, count| within?(@limits[what], count) }
    end

    # @return [String] the limits that were not met, and the classes and lines that allocated most
    def to_s
      wrong = exceeded.map { |what, count| "  #{name(what)}: #{count} allocated, allowed: #{@limits[what]}" }
      [*wrong, "", "  by class", *rows(classes), "", "  by line", *rows(measurement.lines)].join("\n")
    end

    private

    def classes = measurement.classes.reject { |row| INTERNAL.match?(row.name) }

    def allocated(what)
      found = what == :objects ? classes : classes.select { |row| row.name == name(what) }
      found.sum(&:allocated_objects)
    end

    def within?(limit, count) = limit.is_a?(Range) ? limit.cover?(count) : limit == count

    # Paths are relative to the working directory, as in test frameworks.
    def short(name) = name.delete_prefix("#{Dir.pwd}/")

    # A class can redefine `name`.
    def name(what) = what.is_a?(Module) ? Module.instance_method(:name).bind_call(what) : what.to_s

    def rows(rows)
      sorted = rows.select { |row| row.allocated_objects.positive? }.sort_by { |row| -row.allocated_objects }
      sorted.first(ROWS).map { |row| format("  %6d  %s", row.allocated_objects, short(row.name)) }
    end
  end
end
