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
      # So many rounds in a row without growth end the check. One could be a round in which objects of earlier ones were
      # let go of.
      QUIET = 2
      # Rows of a ledger whose blocks are in use, under glibc.
      CHUNKS = %r{\Amalloc/(?:(?:main_heap|arenas)/in_use|mmapped)\z}
      private_constant :QUIET, :CHUNKS

      # Calls a block that no garbage collection interrupts, unless it calls GC.start.
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
      end

      def judge_rounds
        quiet = 0
        @options.rounds.times do
          repeat(@options.iterations)
          judge(@counts, @counts = count)
          quiet = @series.empty? ? quiet + 1 : 0
          break if quiet == QUIET
        end
      end

      def judge(earlier, later)
        @series = later.each_with_object({}) do |(name, number), series|
          growth = number - earlier.fetch(name, 0)
          series[name] = [*@series[name], growth] if @options.excessive?(growth)
        end
      end

      # What the count itself leaves behind is as much each time.
      def count
        Rounds.without_gc do
          Native.clear_stack
          GC.start
          blocks = blocks_in_use if @options.malloc?
          counts = objects
          counts[ALL] = counts.sum { |_name, number| number }
          counts[MALLOC] = blocks if blocks
          counts
        end
      end

      def objects
        census = Census.read
        raise Unavailable, "objects cannot be counted: #{census.reasons.values.join('; ')}" unless census.known?

        rows = census.classes.reject { |row| @options.ignored_class?(row.name) }
        rows.to_h { |row| [-row.name, row.count] }
      end

      # @return [Integer, nil]
      def blocks_in_use
        Native.run_lever(:tcache, nil) # what jemalloc keeps for this thread counts as allocated
        totals = Snapshot.read.jemalloc
        return totals.values_at(:small_nmalloc, :large_nmalloc).sum - freed(totals) if totals

        rows = Ledger.read(deep: true).each_path.filter_map { |path, row| row if CHUNKS.match?(path) }
        rows = rows.select { |row| row.detail[:blocks] }
        rows.any? ? rows.sum { |row| row.detail[:blocks] } : refuse_malloc
      end

      def freed(totals) = totals.values_at(:small_ndalloc, :large_ndalloc).sum

      def refuse_malloc
        @malloc_reason = "blocks of malloc are counted under glibc and jemalloc only, and where the process may read " \
                         "which of its pages are resident"
        nil
      end
    end
    private_constant :Rounds
  end
end
