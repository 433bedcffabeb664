# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # The common part of a profile and of the difference of two: frames, stacks, and everything derived from them.
    module Sampled
      # The class methods.
      #
      # @api private
      module Parsing
        # What a profile of objects knows: the first three, of each stack; all but the first, of the whole.
        OF_OBJECTS = %i[shares live_objects error_objects windows allocations windows_share equal_windows].freeze
        private_constant :OF_OBJECTS

        # @api private
        # @return [Profile] checked: stacks refer to existing frames, and their numbers sum to the totals
        def load(hash, where)
          super.tap do |sampled|
            check_known(sampled, OF_OBJECTS.drop(1), where) if sampled.objects?
            sampled.stacks.each_with_index { |stack, index| check(stack, sampled, [[where, :stacks], index]) }
            %i[live_bytes samples].each do |number|
              sum = sampled.stacks.sum(&number)
              given = sampled.public_send(number)
              Loader.refuse([where, number], given, "#{sum}, the sum of the stacks'") unless given == sum
            end
          end
        end

        private

        def check_known(part, fields, where)
          unknown = fields.find { |field| part.public_send(field).nil? }
          Loader.refuse([where, unknown], nil, "a value, since these are samples of objects") if unknown
        end

        def check(stack, sampled, where)
          allowed = 0...sampled.frames.size
          wrong = stack.frames.reject { |frame| frame.is_a?(Integer) && allowed.cover?(frame) }
          Loader.refuse([where, :frames], wrong.first, "indexes into frames, 0 to #{allowed.max}") unless wrong.empty?
          check_known(stack, OF_OBJECTS.first(3), where) if sampled.objects?
          return if sampled.difference?

          Stack::GROWING.each do |number|
            value = stack.public_send(number)
            Loader.refuse([where, number], value, "an Integer of 0 or more") if value&.negative?
          end
        end
      end

      # The groupings of `by` in a profile of malloc's memory.
      GROUPINGS = %i[line caller method native library stack generation tag thread].freeze
      # The groupings of `by` in a profile of objects.
      OBJECT_GROUPINGS = %i[line caller method class library stack generation tag thread].freeze

      # @api private
      def self.included(base) = base.extend(Parsing)

      # Groups of stacks, the largest first. Their numbers sum to the totals.
      #
      # - :line, the line of a Ruby file nearest to the allocation, preferably outside of Memscope.tag and the tagging
      #   middleware; if there is none, the state that explains why, or the native function
      # - :caller, the line of the application nearest to the allocation: the line of :line itself or, if that is in a
      #   gem or the standard library, the application's line that called into the gem or the library; if there is none,
      #   "[no line of the application]", or the state that explains why no line is known
      # - :method, the method of the line nearest to the allocation
      # - :native, the native function nearest to the allocation, preferably outside the C library, Ruby and the
      #   allocator
      # - :library, the library of the nearest native function outside the C library, Ruby and the allocator, or else of
      #   the line of :line: a gem, "Ruby standard library", "application" or a shared object
      # - :class, of objects
      # - :stack, :generation, :tag, :thread
      #
      # @param grouping [Symbol] one of `groupings`
      # @return [Array<Entry>]
      # @raise [ArgumentError] for any other grouping
      def by(grouping)
        Field.choice(:grouping, grouping, groupings, call: "#{self.class}#by")
        Grouping.new(self).entries(grouping)
      end

      # @return [Array<Symbol>] what `by` takes: GROUPINGS, or OBJECT_GROUPINGS for objects
      def groupings = objects? ? OBJECT_GROUPINGS : GROUPINGS

      # @return [Boolean] whether it is a profile of Ruby's objects, and not of malloc's memory
      def objects? = backend == :objects

      # @api private
      # @param samples [Integer] of a part of this profile
      # @return [Boolean] whether that many samples are enough for estimates to mean something
      def estimated?(samples) = !objects? || samples.abs >= Entry::ENOUGH_SAMPLES

      # @api private
      # @param part [Sampled, Entry] this profile, or an entry of it
      # @param number [Symbol] one of its estimates, such as :live_bytes
      # @return [Numeric, nil] the estimate to show; nil if there are too few samples
      def estimate(part, number) = (part.public_send(number) if estimated?(part.samples))

      # @api private
      # @return [Sampled] the same profile of objects with the errors of its totals
      def with_errors
        changed(error_objects: Shares.error(stacks, Shares::OBJECTS, self),
                error_bytes: Shares.error(stacks, Shares::BYTES, self))
      end

      # Sums over stacks with the same frames, for formats that have no thread, tag or generation.
      #
      # @api private
      # @yieldparam stack [Stack]
      # @yieldreturn [Integer, nil] the stack's number to add up
      # @return [Hash{Array<Integer> => Integer}] the sums by frames, in order of appearance, without sums of 0
      def by_frames
        sums = stacks.each_with_object(Hash.new(0)) { |stack, all| all[stack.frames] += yield(stack) || 0 }
        sums.reject { |_frames, sum| sum.zero? }
      end

      # @return [Integer] the sum of all stacks' live bytes
      def total_live_bytes = live_bytes

      # @return [Boolean] whether the bytes allocated and freed since profiling began are known
      def allocations? = !stacks.empty? && stacks.all?(&:allocated_bytes)

      # @api private
      # @param place [String] a path, or a text that begins with one
      # @return [String] without the application's root
      def local(place)
        application_root.nil? || application_root == "/" ? place : place.delete_prefix("#{application_root}/")
      end

      # @api private
      # @return [Boolean] whether its numbers are growth
      def difference? = !since.nil?

      # A report for people: 80 columns; plain ASCII unless the locale is UTF-8.
      #
      # @param by [Symbol] one of `groupings`
      # @param limit [Integer] the maximum number of entries
      # @param options [Hash] those of Reading#to_s
      # @return [String]
      # @raise [ArgumentError] for another grouping, or a limit other than a positive Integer
      def to_s(by: :line, limit: 20, **options)
        positive = limit.is_a?(Integer) && limit.positive?
        Field.refuse(:limit, limit, "an Integer of 1 or more", call: "#{self.class}#to_s") unless positive
        super
      end

      # A line for each stack: its frames, the outermost first, and its live bytes (in a growth, their growth). For
      # flamegraph.pl, inferno and others.
      #
      # @return [String]
      def to_collapsed = formats.collapsed(self)

      # For https://www.speedscope.app. A growth has one profile of growth and one of shrinkage.
      #
      # @return [String] JSON
      def to_speedscope = formats::Speedscope.new(self).to_s

      # For `go tool pprof`, Pyroscope, Parca: gzipped profile.proto.
      #
      # @return [String] binary; the same for the same profile
      def to_pprof = formats.merged_pprof([[self, {}]])

      # A self-contained page with a flame graph: no network, no other file. Widths are live bytes; in a growth,
      # their changes, red for growth and blue for shrinkage.
      #
      # @param back [String, nil] the address that a link "Back to the profile" leads to; nil for no link
      # @param other [Profile, nil] another profile, such as a profile of objects beside one of malloc's
      #   memory: the page then has a switch between the two, and never adds them up
      # @return [String] HTML
      def to_html(back: nil, other: nil) = formats::FlameGraph.new([self, *other], back: back).to_s

      private

      def formats = Loading.unit(:Formats, self.class)
    end
  end
end
