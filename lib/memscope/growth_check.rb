# frozen_string_literal: true

require "monitor"
require_relative "census"
require_relative "heap_graph"
require_relative "ledger"
require_relative "malloc_profile"
require_relative "object_profile"
require_relative "snapshot"

module Memscope
  # Whether a block leaves memory behind each time it runs: more objects of a class, or more blocks of malloc, from one
  # round of iterations to the next.
  #
  #   check = Memscope::GrowthCheck.run { Report.render }
  #   check.grows?              # => true
  #   check.grown.first.name    # => "Order"
  #   puts check                # what grows, by how many per iteration, where it was allocated, what holds it
  #
  # The block runs in rounds of `iterations`. After each round, garbage is collected, and what is left is counted: all
  # objects by class, and all blocks of malloc. What grows has risen by at least one per iteration, rounded, in each of
  # the last `runs` rounds: counts decide, and neither bytes of RSS nor times. Two rounds without growth end the check.
  #
  # What fills up during the warm-up does not count: memoized values, loaded code, a cache that reaches its bound.
  class GrowthCheck < Reading
    # The block ran for too long in the forked child, or ended it.
    class Unfinished < StandardError; end
    # Nothing can be counted here. The message names the reason.
    class Unavailable < StandardError; end

    # A line that allocated what grows.
    class Place < Record
      # @return [String, nil] the Ruby file; nil if no Ruby code was running
      field :path, :string
      # @return [Integer, nil]
      field :lineno, :count
      # @return [String, nil] for malloc: the native function that allocated most of it
      field :native, :string
      # @return [Integer] objects or blocks that were allocated in two more rounds and are still there
      field :count, :count, null: false
      # @return [Integer] their bytes: of slots and malloc memory, or of blocks
      field :bytes, :bytes, null: false

      # @return [String] "app/models/order.rb:41", "app/models/order.rb:41, inflateInit2_ (libz.so.1)"
      def to_s = [path && [path, lineno].compact.join(":"), native].compact.join(", ")
    end

    # What has grown in every one of the last rounds.
    class Grown < Record
      # The layers in which something can grow.
      LAYERS = %i[objects malloc].freeze

      # @return [Symbol] :objects or :malloc
      field :layer, :symbol, null: false, one_of: LAYERS
      # @return [String, nil] for objects: their class, as in Census::Row; nil for all classes together, and for malloc
      field :name, :string
      # @return [Array<Integer>] objects or blocks that each of the last rounds added; for an Exercise, without those
      #   that were released some seconds later
      field :growth, :list, null: false
      # @return [Integer] growth per iteration, rounded, in the round that added least
      field :per_iteration, :count, null: false
      # @return [Array<Place>] the lines that allocated it, the line with the most first
      field :places, [Place], null: false
      # @return [Array<String>, nil] the objects on a path to one of the grown objects, each with how it refers to the
      #   next (HeapGraph::Path#links)
      field :held_by, :list
    end

    # What has grown, as bodies of Grown, and why lines or holders are missing.
    Found = Struct.new(:grown, :reasons)
    private_constant :Found

    # @return [Integer] how often the block runs in a round
    field :iterations, :count, null: false
    # @return [Integer] how many of the last rounds must each add something
    field :runs, :count, null: false
    # @return [Integer] allowed growth per iteration
    field :max, :count, null: false
    # @return [Integer] how often the block had run before the rounds that decided
    field :warmup_iterations, :count, null: false
    # @return [Integer] how often the block had run when the check was decided
    field :total_iterations, :count, null: false
    # @return [Symbol] where the block ran: :child (a forked child) or :process
    field :ran_in, :symbol, null: false, one_of: %i[child process]
    # @return [Array<Grown>] what grows, the nearest to a root first; none if nothing does
    field :grown, [Grown], null: false
    # @return [Array<String>] classes, "all objects" and "malloc": what had grown enough for `grown`, but was released
    #   seconds later, by a timer or by a thread that ended. Only an Exercise waits for that.
    field :expired, :list, null: false

    # Allows one check at a time in this process: what the block of another check leaves behind would count in both.
    LOCK = Monitor.new
    # Seconds in which timers release what they hold: five are usual for timers that send buffers.
    PAUSE = 6
    private_constant :LOCK, :PAUSE

    require_relative "growth_check/child"
    require_relative "growth_check/counts"
    require_relative "growth_check/options"
    require_relative "growth_check/origins"
    require_relative "growth_check/plan"
    require_relative "growth_check/rounds"
    require_relative "growth_check/survivors"

    class << self
      # Runs the block hundreds of times in a forked child, where it cannot change this process. at_exit handlers do not
      # run there, but what the block writes to a file, a socket or a database persists. If a connection of ActiveRecord
      # has an open transaction, whose rows a child could not see, the block runs in this process, and a reason says so.
      #
      # @param options [Hash{Symbol => Object}]
      #   * `iterations` (100): how often the block runs in a round
      #   * `runs` (5): in how many rounds something must grow
      #   * `warmup` (:auto): iterations before these rounds; :auto: until nothing grows, for at most ten rounds
      #   * `max` (0): allowed growth per iteration, in objects of a class and in blocks of malloc
      #   * `ignore` ([]): what may grow: a Class or its name; a Regexp for names of classes and for places
      #     ("app/models/order.rb:41"); :malloc
      #   * `in` (nil): :fork or :process; nil: as described above
      #   * `deadline` (60): seconds that the child may take
      # @yield
      # @return [GrowthCheck]
      # @raise [ArgumentError] for an unknown option, an invalid value, or without a block
      # @raise [Unfinished] if the child had no answer in time, or ended before it
      # @raise [Unavailable] if objects cannot be counted here
      # @raise [Exception] that the block raises
      def run(**options, &block)
        raise ArgumentError, "Memscope::GrowthCheck.run: no block given" unless block

        options = Options.new(**options)
        raise Unavailable, Native.absence if Native.absence

        place, reason = options.place
        return LOCK.synchronize { of(options, block, :process, reason) } if place == :process

        from_json(Child.answer(options.deadline) do
          MallocProfile.halt # a profile that the parent started keeps blocks in use for a while
          of(options, block, :child, nil).to_json
        end)
      end

      # Checks an Exercise, as `run` checks a block: runs all rounds of its plan, whatever grows. An interrupt after the
      # last round ends the search for lines and holders.
      #
      # @api private
      # @param work [#call] takes a number of iterations, and does them
      # @param plan [Hash{Symbol => Object}] rounds, iterations, runs
      # @yieldparam iterations [Integer] so far
      # @yieldparam count [Count]
      # @return [GrowthCheck]
      # @raise [Unavailable, Exception]
      def follow(work, **plan, &)
        raise Unavailable, Native.absence if Native.absence

        since = Cost.now
        plan = Plan.new(**plan, pause: PAUSE)
        rounds = Rounds.new(plan, work, &).run
        found(plan, rounds, :process, since) do
          Origins.new(plan, rounds, :process)
        rescue Interrupt
          Found.new(rounds.bodies, { places: "interrupted before the lines were found" })
        end
      end

      private

      def of(options, block, ran_in, why_here)
        since = Cost.now
        rounds = Rounds.new(options, ->(times) { times.times { block.call } }).run
        found(options, rounds, ran_in, since, ran_in: why_here) { Origins.new(options, rounds, ran_in) }
      end

      # Notes the iterations first: the given block may run more of them.
      def found(options, rounds, ran_in, since, **reasons)
        ran = { warmup_iterations: rounds.warmup_iterations, total_iterations: rounds.total_iterations }
        origins = yield
        grew = { grown: origins.grown, expired: rounds.expired }
        reasons = { **reasons, malloc: rounds.malloc_reason, **origins.reasons }.compact
        capture({ iterations: options.iterations, runs: options.runs, max: options.max, ran_in: ran_in, **ran, **grew,
                  reasons: reasons, cost: Cost.of(:T3, Cost.now - since) })
      end
    end

    # @return [Boolean] whether something grows
    def grows? = grown.any?

    # @api private
    def known? = true
  end
end
