# frozen_string_literal: true

require_relative "growth_check"

module Memscope
  # Whether an application keeps memory with each request. An exercise makes the same request many times, in rounds, and
  # counts what is in use after each round. `memscope exercise` runs an exercise.
  #
  #   exercise = Memscope::Exercise.run("config.ru", path: "/orders")
  #   exercise.verdict                  # => :grows
  #   exercise.check.grown.first.name   # => "Order"
  #   puts exercise
  #
  # The application is loaded into this process, and garbage is collected before each count. A GrowthCheck judges the
  # last RUNS of ROUNDS rounds: counts of objects and of blocks of malloc decide, not RSS, which rises even if nothing
  # is kept.
  class Exercise < Reading
    # The application cannot be loaded, or a request fails; the message says which.
    class Failed < StandardError; end

    # What was in use after a number of requests.
    class Point < Record
      # @return [Integer] requests so far
      field :requests, :count, null: false
      # @return [Integer] objects, including Ruby's internal objects
      field :objects, :count, null: false
      # @return [Integer] bytes of their slots
      field :slot_bytes, :bytes, null: false
      # @return [Integer, nil] malloc's bytes in use; nil, with a reason, if the allocator does not report them
      field :malloc_bytes, :bytes
      # @return [Integer, nil] RSS
      field :rss_bytes, :bytes
    end

    # The rounds that all requests are divided into.
    ROUNDS = 10
    # How many rounds at the end are judged: only what grows in each of them counts.
    RUNS = 5
    # How many requests can be made: ten a round or more.
    REQUESTS = (100..1_000_000)
    # How many threads can make them.
    THREADS = (1..64)
    # Bytes of a number in an Array.
    ELEMENT_BYTES = 8
    # Bytes that a few buffers and thread caches may take in any application, in total.
    NOISE_BYTES = 2048
    private_constant :ELEMENT_BYTES, :NOISE_BYTES

    # @return [String] the rackup file
    field :target, :string, null: false
    # @return [String] what was requested
    field :path, :string, null: false
    # @return [Integer] the threads that made the requests
    field :threads, :count, null: false
    # @return [String] RAILS_ENV and RACK_ENV
    field :environment, :string, null: false
    # @return [Array<Point>] before the first request, and after each round
    field :points, [Point], null: false
    # @return [GrowthCheck, nil] of the last RUNS rounds; nil, with a reason, if there is no verdict
    field :check, GrowthCheck

    require_relative "exercise/application"
    require_relative "exercise/requests"

    class << self
      # Makes the requests, in this thread or in further threads. Sets RAILS_ENV and RACK_ENV to "production" if neither
      # is set. SIGINT ends the exercise early, without a verdict.
      #
      # @param target [String] a rackup file
      # @param path [String] of the request, with a query if need be
      # @param requests [Integer] how many; each round makes a tenth of them, rounded up
      # @param threads [Integer] how many run concurrently
      # @param headers [Hash{String => String}] sent with each request
      # @param allow_status [Array<Integer>] statuses from 300 to 499 to accept
      # @yieldparam made [Integer] requests so far: before the first request, and after each round. Memory that the
      #   block keeps is counted in the next round
      # @yieldparam all [Integer] how many requests there will be in all
      # @return [Exercise]
      # @raise [ArgumentError] for an invalid value
      # @raise [Failed]
      def run(target, path: "/", requests: 1000, threads: 1, headers: {}, allow_status: [], &progress)
        check_number(:requests, requests, REQUESTS)
        check_number(:threads, threads, THREADS)
        check_headers(headers)
        application = Application.new(target, path, headers: headers, allowed: allow_status)
        iterations = requests.fdiv(ROUNDS).ceil
        of(application, iterations, threads, Curve.new(iterations * ROUNDS, &progress))
      rescue GrowthCheck::Unavailable => e
        raise Failed, e.message
      end

      private

      def check_number(name, given, range)
        return if given.is_a?(Integer) && range.cover?(given)

        Field.refuse("Memscope::Exercise.run: #{name}", given, "an Integer from #{range.min} to #{range.max}")
      end

      def check_headers(given)
        valid = given.is_a?(Hash) && given.to_a.flatten.all? { |one| one.is_a?(String) && !one.match?(/[\r\n]/) }
        Field.refuse("Memscope::Exercise.run: headers", given, "a Hash of Strings without line breaks") unless valid
      end

      def of(application, iterations, threads, curve)
        since = Cost.now
        check, reasons = followed(application, iterations, threads, curve)
        reasons = { **application.reasons, **reasons }
        cost = Cost.of(:T3, Cost.now - since)
        body = { threads: threads, points: curve.points, check: check, reasons: reasons, cost: cost }
        capture({ **application.to_h, **body })
      end

      # @return [Array(GrowthCheck, Hash)] the check (nil if there is no verdict), and the reasons for what is missing
      def followed(application, iterations, threads, curve)
        requests = Requests.new(Array.new(threads) { application })
        handler = trap(:INT) { requests.interrupt }
        check = GrowthCheck.follow(requests, rounds: ROUNDS, runs: RUNS, iterations: iterations, &curve)
        [check, { malloc_bytes: (check.reasons[:malloc] unless curve.malloc?) }.compact]
      rescue Interrupt
        [nil, { check: "interrupted after #{requests.made} requests, before there was a verdict" }]
      ensure
        trap(:INT, handler || "DEFAULT")
        requests.close
      end
    end

    # The points of a curve, in memory that is allocated beforehand: otherwise the memory of each point would be counted
    # in the next point.
    #
    # @api private
    class Curve
      NUMBERS = Point.fields.map(&:name).freeze

      def initialize(all, &progress)
        @all = all
        @numbers = Array.new(NUMBERS.size * (ROUNDS + 1))
        @size = 0
        @progress = progress
      end

      # @return [Proc] takes the block arguments of GrowthCheck.follow
      def to_proc = method(:add).to_proc

      # @return [Boolean] whether malloc's bytes are known
      def malloc? = points.all? { |point| point[:malloc_bytes] }

      # @return [Array<Hash{Symbol => Integer}>] bodies of Point
      def points = @numbers.first(@size).each_slice(NUMBERS.size).map { |numbers| NUMBERS.zip(numbers).to_h }

      private

      def add(requests, count)
        put(requests)
        put(count.objects.sum { |_name, number| number })
        put(count.slot_bytes)
        put(count.malloc_bytes)
        put(count.rss_bytes)
        @progress&.call(requests, @all)
      end

      def put(number)
        @numbers[@size] = number
        @size += 1
      end
    end
    private_constant :Curve

    # @return [Symbol] :steady (nothing grows); :grows; :filling (growth slows down: a cache that is filling, or a
    #   leak); :unknown, with a reason
    def verdict
      return :unknown unless check
      return :steady unless check.grows?

      check.grown.all? { |one| slowing?(one.growth) } ? :filling : :grows
    end

    # @return [Boolean] whether it was ended before there was a verdict
    def interrupted? = check.nil?

    # @return [Integer, nil] the requests of the last RUNS rounds; nil if fewer rounds were run
    def judged_requests = points.size > RUNS ? points.last.requests - points[-RUNS - 1].requests : nil

    # @param name [Symbol] a field of Point
    # @return [Float, nil] its growth per request, over the last RUNS rounds; nil if it is unknown
    def per_request(name)
      values = points.values_at(-RUNS - 1, -1).filter_map(&name) if judged_requests
      (values.last - values.first).fdiv(judged_requests) if values&.size == 2
    end

    # @return [Integer, nil] by how many bytes malloc grew per request in the last RUNS rounds, although no count grew:
    #   because blocks become larger, such as the block of an Array of numbers, or because fewer than half of the
    #   requests leak. nil if a count grew, or if malloc grew by less than an Array's element per request, or by less
    #   than 2 KiB in all
    def uncounted_bytes
      return unless verdict == :steady && check.expired.empty?

      bytes = per_request(:malloc_bytes)&.round
      bytes if bytes && bytes >= ELEMENT_BYTES && bytes * judged_requests >= NOISE_BYTES
    end

    # @return [Integer] how many requests can tell a leak from a cache that is still filling
    def longer_requests = (10 * points.last&.requests.to_i).clamp(REQUESTS)

    # @api private
    def known? = true

    private

    # Whether the last two rounds added at most three quarters of what the first two added.
    def slowing?(growth) = 4 * growth.last(2).sum <= 3 * growth.first(2).sum
  end
end
