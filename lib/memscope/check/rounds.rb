# frozen_string_literal: true

module Memscope
  class Check < Reading
    # Does work in rounds, counts objects and blocks after each, and keeps the counts that have grown in every round.
    #
    # A count must not disturb the next one: only the last count is kept, with interned names, and the points are
    # written into memory that is allocated beforehand.
    # @api private
    class Rounds
      # The name under which all objects are counted. No class has such a name.
      ALL = "all objects"
      # The name under which blocks of malloc are counted.
      MALLOC = "malloc"
      # The check ends early once everything has had this many rounds without growth. A single such round would not do:
      # it could be one that released objects of earlier rounds.
      QUIET = 2
      # If less than this share of a growth is left after the pause, memory was released: two counts of the same memory
      # differ by less.
      MAX_LEFT_SHARE = 0.9
      NUMBERS = Point.fields.map(&:name).freeze

      # `grown` has the growth of a class, of ALL or of MALLOC in each of the last rounds.
      attr_reader :grown, :reasons

      # `work` is called with a number of iterations. The block gets the number of iterations so far, before the first
      # round and after each.
      def initialize(options, work, memory = InUse, &progress)
        @options = options
        @work = work
        @memory = memory
        @progress = progress
        @points = Array.new(NUMBERS.size * (options.rounds + 1))
        @total_iterations = @noted = 0
        @grown = @expired = @series = {}
        @rounds_of_growth = Hash.new(0)
        @reasons = {}
      end

      def run
        rehearse
        repeat(@options.unjudged)
        @counts = counted
        judge_rounds
        @grown = @series.select { |_name, growth| growth.size >= @options.runs }
                        .transform_values { |growth| growth.last(@options.runs) }
        pause if @options.pause && @grown.any?
        self
      end

      def to_h
        { warmup_iterations: [@total_iterations - (@options.runs * @options.iterations), 0].max,
          total_iterations: @total_iterations, expired: @expired.keys,
          points: @points.first(@noted).each_slice(NUMBERS.size).map { |numbers| NUMBERS.zip(numbers).to_h } }
      end

      def repeat(times)
        @total_iterations += times
        @work.call(times)
      end

      # The names of classes that have grown, or ALL if no single class has, followed by MALLOC.
      def names
        classes = @grown.keys.select { |name| class?(name) }
        classes = @grown.keys & [ALL] if classes.empty? && @expired.none? { |name, _growth| class?(name) }
        [*classes, *(@grown.keys & [MALLOC])]
      end

      # The body of a Grown.
      def body(name, places = [])
        growth = @grown.fetch(name)
        { layer: name == MALLOC ? :malloc : :objects, name: (name if class?(name)), growth: growth,
          per_iteration: growth.map { |number| @options.per_iteration(number) }.min, places: places }
      end

      # True if more than a tenth of some growth was released in the pause.
      def released? = @released == true

      private

      # Fills the inline caches of memscope's own code.
      def rehearse
        2.times { judge(@counts || {}, @counts = count { |found| note(found) }) }
        @series = {}
        @rounds_of_growth.clear
        @noted = 0
      end

      def judge_rounds
        1.upto(@options.rounds) do |round|
          repeat(@options.iterations)
          judge(@counts, @counts = counted)
          break if @options.ends_early? && round - @rounds_of_growth.values.max.to_i >= QUIET
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

      # Growth that is left after the pause counts. The rest was in a buffer that is sent now and then, or held by a
      # thread that was about to end. The rest is subtracted from the rounds in proportion.
      def pause
        sleep(@options.pause)
        later = count
        left = @grown.to_h do |name, growth|
          share = share_left(name, mean(growth), later)
          @released ||= share < MAX_LEFT_SHARE
          [name, growth.map { |number| (number * share).round }]
        end
        @grown, @expired = left.partition { |_name, growth| @options.excessive?(mean(growth)) }.map(&:to_h)
      end

      def mean(growth) = growth.sum.fdiv(growth.size)

      def class?(name) = ![ALL, MALLOC].include?(name)

      # Attributes released growth to the whole series, but not to the part of a round's growth above the mean, which
      # the first round often has.
      def share_left(name, mean, later)
        return 1.0 if name == MALLOC && !later.key?(name)

        grew = @series.fetch(name).sum { |number| [number, mean].min }
        (grew - @counts.fetch(name) + later.fetch(name, 0)).fdiv(grew).clamp(0.0, 1.0)
      end

      def counted = count { |found| note(found) }.tap { @progress&.call(@total_iterations) }

      # With garbage collection disabled, the count itself leaves the same amount behind each time.
      def count
        was_disabled = GC.disable
        found = @memory.read(malloc: @options.malloc?)
        yield found if block_given?
        @reasons[:malloc] = WORDS[:uncounted] if @options.malloc? && found.blocks.nil?
        counts = found.objects.delete_if { |name, _count| @options.ignored_class?(name) }
        counts[ALL] = counts.sum { |_name, number| number }
        counts[MALLOC] = found.blocks if found.blocks
        counts
      ensure
        GC.enable unless was_disabled
      end

      def note(found)
        objects = found.objects.sum { |_name, number| number }
        numbers = [@total_iterations, objects, found.slot_bytes, found.malloc_bytes, found.rss_bytes]
        @points[@noted, numbers.size] = numbers
        @noted += numbers.size
      end
    end
  end
end
