# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # The common part of a profile and of the difference of two: frames, stacks, and everything derived from them.
    module Sampled
      # The class methods.
      #
      # @api private
      module Parsing
        # @api private
        # @return [Profile, Difference] checked: stacks refer to existing frames, and their numbers sum to the totals
        def load(hash, where)
          super.tap do |sampled|
            sampled.stacks.each_with_index { |stack, index| check(stack, sampled, "#{where}: stacks[#{index}]") }
            %i[live_bytes samples].each do |number|
              sum = sampled.stacks.sum(&number)
              given = sampled.public_send(number)
              Loader.refuse("#{where}: #{number}", given, "#{sum}, the sum of the stacks'") unless given == sum
            end
          end
        end

        private

        def check(stack, sampled, where)
          allowed = 0...sampled.frames.size
          wrong = stack.frames.reject { |frame| frame.is_a?(Integer) && allowed.cover?(frame) }
          Loader.refuse("#{where}.frames", wrong.first, "indexes into frames, 0 to #{allowed.max}") unless wrong.empty?
          return if sampled.difference?

          Stack::GROWING.each do |number|
            value = stack.public_send(number)
            Loader.refuse("#{where}.#{number}", value, "an Integer of 0 or more") if value&.negative?
          end
        end
      end

      # The groupings of `by`.
      GROUPINGS = %i[line method native library stack generation tag thread].freeze

      # @api private
      def self.included(base) = base.extend(Parsing)

      # Groups of stacks, the largest first. Their numbers sum to the totals.
      #
      # - :line, the line of a Ruby file nearest to the allocation, where possible not one of Memscope.tag or of the
      #   tagging middleware; if there is none, the state that explains why, or the native function
      # - :method, the method of that line
      # - :native, the native function nearest to the allocation, preferably outside the C library, Ruby and the
      #   allocator
      # - :library, the library of the nearest native function outside these three, or else of that line: a gem, "Ruby
      #   standard library", "application" or a shared object
      # - :stack, :generation, :tag, :thread
      #
      # @param grouping [Symbol] one of GROUPINGS
      # @return [Array<Entry>]
      # @raise [ArgumentError] for any other grouping
      def by(grouping)
        unless GROUPINGS.include?(grouping)
          raise ArgumentError, "#{self.class}#by: grouping: given #{Field.excerpt(grouping)}, allowed: " \
                               "#{GROUPINGS.map(&:inspect).join(', ')}"
        end

        Grouping.new(self).entries(grouping)
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
      # @return [Boolean] whether its numbers are growth
      def difference? = is_a?(Difference)

      # A report for people: 80 columns; plain ASCII unless the locale is UTF-8.
      #
      # @param by [Symbol] one of GROUPINGS
      # @param limit [Integer] the maximum number of entries
      # @param options [Hash] those of Reading#to_s
      # @return [String]
      # @raise [ArgumentError] for another grouping, or a limit other than a positive Integer
      def to_s(by: :line, limit: 20, **options)
        unless limit.is_a?(Integer) && limit.positive?
          raise ArgumentError, "#{self.class}#to_s: limit: given #{Field.excerpt(limit)}, allowed: an Integer of 1 " \
                               "or more"
        end

        super
      end

      # A line for each stack: its frames, the outermost first, and its live bytes (in a Difference, their growth). For
      # flamegraph.pl, inferno and others.
      #
      # @return [String]
      def to_collapsed = Formats.collapsed(self)

      # For https://www.speedscope.app. A Difference has one profile of growth and one of shrinkage.
      #
      # @return [String] JSON
      def to_speedscope = Formats::Speedscope.new(self).to_s

      # For `go tool pprof`, Pyroscope, Parca: gzipped profile.proto.
      #
      # @return [String] binary; the same for the same profile
      def to_pprof = Formats.merged_pprof([[self, {}]])

      # For https://profiler.firefox.com: its processed format.
      #
      # @return [String] JSON
      def to_firefox = Formats::Firefox.new(self).to_s

      # A self-contained page with a flame graph: no network, no other file. Widths are live bytes; in a Difference,
      # their changes, red for growth and blue for shrinkage.
      #
      # @return [String] HTML
      def to_html = Formats::FlameGraph.new(self).to_s
    end
  end
end
