# frozen_string_literal: true

module Memscope
  class GrowthCheck < Reading
    # Does work in rounds, counts after each what is left, and keeps what has grown in every round so far.
    #
    # A count must not disturb the next one: only the last count is kept, with interned names.
    #
    # @api private
    class Rounds
      # The name under which all objects are counted. No class has such a name.
      ALL = "all objects"
      # The name under which blocks of malloc are counted.
      MALLOC = "malloc"
      # The check ends early once everything has had this many rounds without growth. A single such round would not do:
      # it could be one that released objects of earlier rounds.
      QUIET = 2
      UNCOUNTED = "blocks of malloc can be counted under glibc and jemalloc only, and where the process may read " \
                  "which of its pages are resident"
      # If less than this share of some growth is left, something was released: the difference that a second count
      # alone makes is smaller.
      MOST = 0.9
      private_constant :QUIET, :UNCOUNTED, :MOST

      # Calls the block with garbage collection disabled; the block can still ask for one.
      def self.without_gc
        was_disabled = GC.disable
        yield
      ensure
        GC.enable unless was_disabled
      end

      # @return [Hash{String => Array<Integer>}] the growth of a class, of ALL or of MALLOC in each of the last rounds
      attr_reader :grown
      # @return [Array<String>] names of what would be in `grown`, but was released in the pause
      attr_reader :expired
      # @return [Integer] iterations so far
      attr_reader :total_iterations
      # @return [String, nil] why blocks of malloc were not counted
      attr_reader :malloc_reason

      # @param options [Options]
      # @param work [#call] does as many iterations as it is called with
      # @param memory [#read] counts what is left
      # @yieldparam iterations [Integer] so far
      # @yieldparam count [Count] before the first round, and after each round; memory that the block keeps is in the
      #   next count
      def initialize(options, work, memory = Counts, &seen)
        @options = options
        @work = work
        @memory = memory
        @seen = seen
        @total_iterations = 0
        @expired = []
        @released = false
        @series = {}
        @rounds_of_growth = Hash.new(0)
      end

      # @return [self]
      # @raise [Unavailable] if objects cannot be counted
      def run
        rehearse
        repeat(@options.unjudged)
        @counts = count(&@seen)
        judge_rounds
        @grown = @series.select { |_name, growth| growth.size >= @options.runs }
                        .transform_values { |growth| growth.last(@options.runs) }
        pause if @options.pause && grown.any?
        self
      end

      # @return [Integer] iterations before the rounds that decided
      def warmup_iterations = [total_iterations - (@options.runs * @options.iterations), 0].max

      # @param times [Integer] iterations
      def repeat(times)
        @total_iterations += times
        @work.call(times)
      end

      # @return [Array<String>] what has grown: classes, or ALL if no single class has grown; then MALLOC
      def names
        classes = grown.keys.select { |name| class?(name) }
        classes = grown.keys & [ALL] if classes.empty? && expired.none? { |name| class?(name) }
        [*classes, *(grown.keys & [MALLOC])]
      end

      # @param name [String] of `names`
      # @param places [Array<Place>]
      # @return [Hash{Symbol => Object}] the body of a Grown
      def body(name, places = [])
        growth = grown.fetch(name)
        { layer: name == MALLOC ? :malloc : :objects, name: (name if class?(name)), growth: growth,
          per_iteration: growth.map { |number| @options.per_iteration(number) }.min, places: places }
      end

      # @return [Boolean] whether more than a tenth of some growth was released in the pause
      def released? = @released

      # @return [Array<Hash>] the bodies of all that has grown, without their places
      def bodies = names.map { |name| body(name) }

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
          judge(@counts, @counts = count(&@seen))
          break if @options.ends_early? && quiet?(round)
        end
      end

      def quiet?(round)
        round >= QUIET && @rounds_of_growth.each_value.all? { |grown| round - grown >= QUIET }
      end

      def judge(earlier, later)
        @series = later.each_with_object({}) do |(name, number), series|
          growth = number - earlier.fetch(name, 0)
          next unless @options.excessive?(growth)

          series[name] = [*@series[name], growth]
          @rounds_of_growth[name] += 1
        end
      end

      # Growth that is left after the pause counts; the rest was in a buffer that is sent now and then, or held by a
      # thread that was about to end. The rest is subtracted from the rounds in proportion.
      def pause
        sleep(@options.pause)
        later = count
        shares = grown.to_h { |name, growth| [name, share_left(name, mean(growth), later)] }
        @released = shares.each_value.min < MOST
        left = grown.to_h { |name, growth| [name, growth.map { |number| (number * shares[name]).round }] }
        @grown, expired = left.partition { |_name, growth| @options.excessive?(mean(growth)) }.map(&:to_h)
        @expired = expired.keys
      end

      def mean(growth) = growth.sum.fdiv(growth.size)

      def class?(name) = ![ALL, MALLOC].include?(name)

      # Attributes what was released to the whole series, but not to the part of a round's growth above the mean, which
      # the first round often has.
      #
      # @return [Float] the share of growth that is left; 1 if that is unknown
      def share_left(name, mean, later)
        return 1.0 if name == MALLOC && !later.key?(name)

        grew = @series.fetch(name).sum { |number| [number, mean].min }
        (grew - @counts.fetch(name) + later.fetch(name, 0)).fdiv(grew).clamp(0.0, 1.0)
      end

      # With garbage collection disabled, the count itself leaves the same amount behind each time.
      def count
        Rounds.without_gc do
          found = @memory.read(malloc: @options.malloc?)
          yield total_iterations, found if block_given?
          @malloc_reason = UNCOUNTED if @options.malloc? && found.blocks.nil?
          counts = found.objects.delete_if { |name, _count| @options.ignored_class?(name) }
          counts[ALL] = counts.sum { |_name, number| number }
          counts[MALLOC] = found.blocks if found.blocks
          counts
        end
      end
    end
    private_constant :Rounds
  end
end
