# frozen_string_literal: true

module Memscope
  class Check < Reading
    # The number of objects that a block allocates, in all and of given classes, compared with limits.
    #
    #   allocations = Memscope::Check.allocations({ objects: 0..12, String => 0..3 }) { parse(line) }
    #   allocations.passed?  # => false
    #   puts allocations     # the block's allocations, by class and by line
    #
    # The block has run once before, to load code, fill Ruby's inline caches, and memoize: all later runs are alike.
    class Allocations
      # Matches the names of internal objects, which no Ruby code can reach, and whose counts differ between Rubies.
      INTERNAL = /\A(?:imemo_|T_)/
      # Maximum rows per list.
      ROWS = 10
      private_constant :INTERNAL, :ROWS

      class << self
        # @api private
        def check(limits)
          refuse("limits", limits, WORDS[:limits]) unless limits.is_a?(Hash) && limits.any?

          limits.each do |what, limit|
            known = what == :objects || what.is_a?(String) || (what.is_a?(Class) && named?(what))
            refuse("limits", what, WORDS[:limited]) unless known
            refuse(what.inspect, limit, WORDS[:limit]) unless limit?(limit)
          end
        end

        private

        # Objects are counted by their class's name. Objects of an anonymous class, or of a class in an anonymous
        # module, count under another name, so the count for the class itself would always be 0.
        def named?(known) = Module.instance_method(:name).bind_call(known)&.start_with?("#") == false

        def limit?(limit)
          bounds = limit.is_a?(Range) ? [limit.begin, limit.end].compact : [limit]
          bounds.any? && bounds.all? { |bound| bound.is_a?(Integer) && !bound.negative? }
        end

        def refuse(what, given, allowed) = Field.refuse(what, given, allowed, call: "Memscope::Check.allocations")
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

      # @return [Hash{Symbol, Module, String => Integer}] the allocated objects, for each limit that was not met
      def exceeded
        counts = @limits.to_h { |what, _limit| [what, allocated(what)] }
        counts.reject { |what, count| within?(@limits[what], count) }
      end

      # @return [String] the limits that were not met, and the classes and lines that allocated most
      def to_s
        wrong = exceeded.map { |what, count| "  #{name(what)}: #{count} allocated, allowed: #{@limits[what]}" }
        [*wrong, "", "  by class", *rows(classes), "", "  by line", *rows(measurement.lines)].join("\n")
      end

      private

      def classes = measurement.classes.reject { |row| INTERNAL.match?(row.name) }

      def allocated(what)
        (what == :objects ? classes : classes.select { |row| row.name == name(what) }).sum(&:allocated_objects)
      end

      def within?(limit, count) = limit.is_a?(Range) ? limit.cover?(count) : limit == count

      # A class can redefine `name`.
      def name(what) = what.is_a?(Module) ? Module.instance_method(:name).bind_call(what) : what.to_s

      # Paths are relative to the working directory, as in test frameworks.
      def rows(rows)
        rows.select { |row| row.allocated_objects.positive? }.max_by(ROWS, &:allocated_objects).map do |row|
          format("  %6d  %s", row.allocated_objects, row.name.delete_prefix("#{Dir.pwd}/"))
        end
      end
    end
  end
end
