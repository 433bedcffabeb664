# frozen_string_literal: true

module Memscope
  class GrowthCheck < Reading
    # Runs a block in rounds, counts after each what is left, and keeps what has grown in every round so far.
    #
    # A count must not disturb the next one: only the last one is kept, with interned names.
    #
    # @api private
    class Rounds
      # What all objects count as. No class has such a name.
      ALL = "all objects"
      # What blocks of malloc count as.
      MALLOC = "malloc"
      # What has not grown in so many rounds cannot fail any more. In one of them, objects of earlier rounds could have
      # been let go of.
      QUIET = 2
      private_constant :QUIET

      # Calls a block that no garbage collection interrupts, unless it asks for one.
      def self.without_gc
        was_disabled = GC.disable
        yield
      ensure
        GC.enable unless was_disabled
      end

      # @return [Hash{String => Array<Integer>}] the growth of a class, of ALL or of MALLOC in each of the last rounds
      attr_reader :grown
      # @return [Integer] how often the block has run
      attr_reader :total_iterations
      # @return [String, nil] why blocks of malloc were not counted
      attr_reader :malloc_reason

      # @param options [Options]
      # @param block [Proc]
      def initialize(options, block)
        @options = options
        @block = block
        @total_iterations = 0
        @series = {}
        @rounds_of_growth = Hash.new(0)
      end

      # @return [self]
      # @raise [Unavailable] if objects cannot be counted
      def run
        rehearse
        repeat(@options.unjudged)
        @counts = count
        judge_rounds
        @grown = @series.select { |_name, growth| growth.size >= @options.runs }
                        .transform_values { |growth| growth.last(@options.runs) }
        self
      end

      # @return [Integer] iterations before the rounds that decided
      def warmup_iterations = [total_iterations - (@options.runs * @options.iterations), 0].max

      # Runs the block.
      #
      # @param times [Integer]
      def repeat(times)
        @total_iterations += times
        times.times { @block.call }
      end

      private

      # Fills the inline caches of memscope's own code.
      def rehearse
        2.times { judge(@counts || {}, @counts = count) }
        @series = {}
        @rounds_of_growth = Hash.new(0)
      end

      def judge_rounds
        1.upto(@options.rounds) do |round|
          repeat(@options.iterations)
          judge(@counts, @counts = count)
          break if round >= QUIET && @rounds_of_growth.each_value.all? { |grown| round - grown >= QUIET }
        end
      end

      def judge(earlier, later)
        @series = later.each_with_object({}) do |(name, number), series|
          growth = number - earlier.fetch(name, 0)
          next unless @options.excessive?(growth)

          series[name] = [*@series[name], growth]
          @rounds_of_growth[name] += 1
        end
      end

      # What the count itself leaves behind is as much each time.
      def count
        Rounds.without_gc do
          Native.clear_stack
          Native.collect_garbage
          blocks = self.blocks if @options.malloc?
          counts = objects
          counts[ALL] = counts.sum { |_name, number| number }
          counts[MALLOC] = blocks if blocks
          counts
        end
      end

      def objects = Counts.objects.delete_if { |name, _count| @options.ignored_class?(name) }

      def blocks
        Counts.blocks || begin
          @malloc_reason = "blocks of malloc can be counted under glibc and jemalloc only, and where the process may " \
                           "read which of its pages are resident"
          nil
        end
      end
    end
    private_constant :Rounds
  end
end
