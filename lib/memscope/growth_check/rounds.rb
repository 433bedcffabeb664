# frozen_string_literal: true

require_relative "../growth_check"

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
      MALLOC = "malloc"
      # So many rounds in a row without growth end the check. One could be a round in which much of an earlier one was
      # let go of.
      QUIET = 2
      # Rows of a ledger whose blocks are in use, under glibc.
      CHUNKS = %r{\Amalloc/(?:(?:main_heap|arenas)/in_use|mmapped)\z}
      private_constant :QUIET, :CHUNKS

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
      end

      # @return [self]
      # @raise [Unavailable] if objects cannot be counted
      def run
        @counts = count # fills the inline caches of memscope's own code
        repeat(@options.unjudged)
        @counts = count
        @series = {}
        quiet = 0
        @options.rounds.times do
          repeat(@options.iterations)
          judge
          break if (quiet = @series.empty? ? quiet + 1 : 0) == QUIET
        end
        @grown = @series.select { |_name, growth| growth.size >= @options.runs }
                        .transform_values { |growth| growth.last(@options.runs) }
        self
      end

      # @return [Integer] iterations before the rounds that decided
      def warmup_iterations = total_iterations - (@options.runs * @options.iterations).clamp(0, total_iterations)

      # Runs the block.
      #
      # @param times [Integer]
      def repeat(times)
        @total_iterations += times
        times.times { @block.call }
      end

      private

      def judge
        earlier = @counts
        @counts = count
        @series = @counts.each_with_object({}) do |(name, number), series|
          growth = number - earlier.fetch(name, 0)
          series[name] = [*@series[name], growth] if @options.excessive?(growth)
        end
      end

      # Blocks of malloc first: counting objects leaves garbage, with blocks of its own.
      def count
        blocks = (blocks_in_use if @options.malloc?)
        census = Census.read(gc: true)
        raise Unavailable, census.reasons.values.join("; ") unless census.known?

        counts = census.classes.to_h { |row| [-row.name, row.count] }
        counts.delete_if { |name, _count| @options.ignored_class?(name) }
        counts[ALL] = counts.sum { |_name, count| count }
        counts[MALLOC] = blocks if blocks
        counts
      end

      # @return [Integer, nil]
      def blocks_in_use
        GC.start
        Native.run_lever(:tcache, nil) # what jemalloc keeps for this thread counts as allocated
        blocks_of_jemalloc(Snapshot.read.jemalloc) || blocks_of_glibc(Ledger.read(deep: true))
      end

      def blocks_of_jemalloc(totals)
        made, freed = %w[nmalloc ndalloc].map { |key| %w[small large].sum { |size| totals[:"#{size}_#{key}"] } } if totals
        made && (made - freed)
      end

      # Chunks that the walk found in use, in the main heap and in the arenas, and those with a mapping of their own.
      def blocks_of_glibc(ledger)
        rows = ledger.each_path.filter_map { |path, row| row if CHUNKS.match?(path) && row.detail[:blocks] }
        rows.any? ? rows.sum { |row| row.detail[:blocks] } : refuse_malloc(ledger)
      end

      def refuse_malloc(ledger)
        @malloc_reason = "blocks are counted under glibc and jemalloc only; #{ledger.allocator.name} serves malloc"
        nil
      end
    end
    private_constant :Rounds
  end
end
