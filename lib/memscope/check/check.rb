# frozen_string_literal: true

require "monitor"
Memscope::Loading.units :Census, :HeapGraph, :MallocProfile, :Measurement

module Memscope
  Record.declare(__FILE__)

  # Checks whether code leaves memory behind each time it runs: more objects of a class, or more blocks of malloc, from
  # one round to the next.
  #
  #   check = Memscope::Check.run { Report.render }
  #   check.verdict             # => :leak
  #   check.grown.first.name    # => "Order"
  #   puts check                # growth per iteration, where it was allocated, and its retainers
  #
  # After each round, garbage is collected, and all objects of each class and all blocks of malloc are counted. A count
  # grows if it has risen by at least one per iteration, rounded, in each of the last `runs` rounds. Bytes of RSS and
  # times decide nothing.
  class Check < Reading
    WORDS = Words.beside(__FILE__)
    private_constant :WORDS

    # The block or the application did not finish, for the reason in the message.
    class Failed < StandardError; end

    # A line that allocated growing objects or blocks.
    class Place < Record
      # @return [String] "app/models/order.rb:41", "app/models/order.rb:41, inflateInit2_ (libz.so.1)"
      def to_s = [path && [path, lineno].compact.join(":"), native].compact.join(", ")
    end

    # :leak; :filling, if the growth slows down; :step, if objects rose by one per iteration over all rounds, but not in
    # each; :steady.
    VERDICTS = declared(:verdict).one_of
    # The rounds of requests to an application.
    ROUNDS = 10
    # How many of them, at the end, are judged.
    RUNS = 5
    # How many requests can be made: ten a round or more.
    REQUESTS = (100..1_000_000)
    # Seconds in which timers release their objects: five are usual for timers that send buffers.
    SETTLE_SECONDS = 6
    # Bytes of a number in an Array.
    ELEMENT_BYTES = 8
    # Bytes that a few buffers may take in any application, in total.
    NOISE_BYTES = 2048
    # Allows one check at a time in this process: the growth of another check's block would count in both.
    LOCK = Monitor.new
    private_constant :SETTLE_SECONDS, :ELEMENT_BYTES, :NOISE_BYTES, :LOCK

    %w[allocations application child in_use options origins rounds].each { |part| require_relative part }

    class << self
      # Runs the block hundreds of times in a forked child, where it cannot change this process. at_exit handlers do not
      # run there, but the block's writes to a file, a socket or a database persist. If a connection of ActiveRecord
      # has an open transaction, whose rows a child could not see, the block runs in this process, with a reason.
      # Two rounds without growth end the check.
      #
      # @param options [Hash{Symbol => Object}]
      #   * `iterations` (100): how often the block runs in a round
      #   * `runs` (5): in how many rounds something must grow
      #   * `warmup` (:auto): iterations before these rounds. :auto: until nothing grows, for at most ten rounds
      #   * `max` (0): allowed growth per iteration, in objects of a class and in blocks of malloc
      #   * `ignore` ([]): allowed to grow: a Class or its name; a Regexp for names of classes and for places
      #     ("app/models/order.rb:41"); :malloc
      #   * `in` (nil): :fork or :process. nil decides as described above
      #   * `deadline` (60): seconds that the child may take
      # @yield
      # @return [Check]
      # @raise [ArgumentError] for an unknown option, an invalid value, or without a block
      # @raise [Failed] if the child had no answer in time, or ended before it
      # @raise [Unavailable] if objects cannot be counted here
      # @raise [Exception] that the block raises
      def run(**options, &block)
        raise ArgumentError, "Memscope::Check.run: no block given" unless block

        options = Options.new(options)
        work = ->(times) { times.times { block.call } } # rubocop:disable Performance/RedundantBlockCall -- its arity
        place, reason = options.place
        return of(options, work, reasons: { ran_in: reason }, ran_in: :process) if place == :process

        from_json(Child.answer(options.deadline) do
          MallocProfile.halt # a profile that the parent started keeps blocks in use for a while
          of(options, work, ran_in: :child).to_json
        end)
      end

      # Loads the application of a rackup file into this process, and makes the same request many times, in ten rounds,
      # of which the last five are judged. RAILS_ENV and RACK_ENV become "production" if neither is set.
      #
      # @param target [String] a rackup file. action/measure.rb has loaded it, and gives the Application
      # @param path [String] of the request, by GET, with a query if need be
      # @param requests [Integer] how many. Each round makes a tenth of them, rounded up
      # @yieldparam made [Integer] requests so far: before the first request, and after each round
      # @return [Check]
      # @raise [ArgumentError] for an invalid value
      # @raise [Failed] if the application cannot be loaded, or a request fails
      # @raise [Unavailable] if objects cannot be counted here
      def application(target, path: "/", requests: 1000, &progress)
        known = requests.is_a?(Integer) && REQUESTS.cover?(requests)
        Field.refuse(:requests, requests, "an Integer from 100 to 1000000", call: "#{self}.application") unless known

        application = target.is_a?(Application) ? target : Application.new(target, path)
        options = Options.new({ iterations: requests.fdiv(ROUNDS).ceil, runs: RUNS, warmup: 0, in: :process },
                              rounds: ROUNDS, pause: SETTLE_SECONDS)
        of(options, application, ran_in: :process, **application.to_h, &progress)
      end

      # Runs the block twice in this process, and checks how many objects the second run allocates against limits.
      #
      # @param limits [Hash{Symbol, Module, String => Integer, Range<Integer>}] for a class with a name, or for :objects
      #   (all classes), how many objects the block may allocate. An Integer means exactly that many. Internal objects
      #   do not count. The block must not create a Ractor
      # @yield twice
      # @return [Allocations]
      # @raise [ArgumentError] for an invalid limit, or without a block
      # @raise [Unavailable] if this Ruby cannot count objects by class, or the program measures or profiles objects
      def allocations(limits, &block)
        raise ArgumentError, "Memscope::Check.allocations: no block given" unless block

        Allocations.check(limits)
        measurement = LOCK.synchronize do
          yield
          Measurement.take(&block)
        end
        raise Unavailable.new(:objects_uncounted, measurement.reasons[:classes]) unless measurement.classes

        Allocations.new(limits, measurement)
      end

      private

      def of(options, work, reasons: {}, **about, &progress)
        raise Unavailable.new(:extension_absent, Native.absence) if Native.absence

        LOCK.synchronize do
          since = Cost.now
          rounds = Rounds.new(options, work, &progress).run
          body = rounds.to_h # the search for lines runs more rounds
          origins = Origins.new(options, rounds)
          body = { **options.to_h, **about, **body, verdict: :steady, grown: origins.grown }
          reasons = { **reasons, **rounds.reasons, **origins.reasons }.compact
          capture(body.update(reasons: reasons, cost: Cost.of(:T3, Cost.now - since))).judged
        end
      end
    end

    # @return [Boolean] whether something grows
    def grows? = grown.any?

    # @param name [Symbol] a field of Point
    # @return [Float, nil] its growth per iteration, over the judged rounds, or nil if unknown
    def per_iteration(name)
      values = judged_points.filter_map(&name)
      (values.last - values.first).fdiv(judged_iterations) if values.size == 2
    end

    # @return [Integer] iterations of the rounds that are judged
    def judged_iterations = judged_points.map(&:iterations).then { |first, last| last.to_i - first.to_i }

    # @return [Integer, nil] by how many bytes malloc grew per iteration, although no count grew: because blocks become
    #   larger, such as the block of an Array of numbers, or because fewer than half of the iterations leak. nil if a
    #   count grew, or if malloc grew by less than an Array's element per iteration, or by less than 2 KiB in all
    def uncounted_bytes
      return unless verdict == :steady && expired.empty?

      bytes = per_iteration(:malloc_bytes)&.round
      bytes if bytes && bytes >= ELEMENT_BYTES && bytes * judged_iterations >= NOISE_BYTES
    end

    # @return [Integer] the number of iterations that separates a leak from a cache that is still filling
    def longer_iterations = 10 * total_iterations

    # @api private
    def judged
      return changed(verdict: grown.all? { |one| slowing?(one.growth) } ? :filling : :leak) if grows?

      changed(verdict: rose? ? :step : :steady)
    end

    # @api private
    def known? = true

    private

    def rose? = expired.empty? && per_iteration(:objects).to_f.round > max

    # The first and the last point of the judged rounds, or fewer if there are not two.
    def judged_points = points.last(runs + 1).values_at(0, -1).uniq.compact

    # True if the last two rounds added at most three quarters as much as the first two.
    def slowing?(growth) = 4 * growth.last(2).sum <= 3 * growth.first(2).sum
  end
end
