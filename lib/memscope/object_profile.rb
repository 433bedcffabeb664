# frozen_string_literal: true

require_relative "profile"

module Memscope
  # Which Ruby lines keep objects alive. Samples allocations, as many as its budget allows, and drops each sample when
  # the garbage collector finds its object dead. From Ruby 3.3 on, cheap enough to be always on.
  #
  # One profile runs at a time, for the whole process, whichever thread starts it. A forked child continues its own copy
  # of its parent's profile until the child stops it; then it can start another one.
  #
  #     Memscope::ObjectProfile.start
  #     # … a while later
  #     puts Memscope::ObjectProfile.snapshot
  #
  # The profile keeps no object, class or method alive. It needs a program without other Ractors: it does not start
  # while one is alive, and does not count objects that are allocated after one was created.
  module ObjectProfile
    # The default share of the process's CPU time.
    BUDGET = 0.01
    # The largest budget: every allocation is watched.
    MOST = 1
    # What `ractors` may be.
    RACTORS = [nil, :never].freeze

    # A profile cannot be started or read. The message says why.
    class Unavailable < StandardError; end

    RACTORS_ALIVE = "other Ractors are alive, whose allocations cannot be sampled: start when they have ended"
    # Ruby versions that crash when objects are sampled (Bug #19482). Each pair is a range: from its first version up
    # to, but not including, its second.
    CRASHING = [[[3, 2, 0], [3, 2, 3]]].freeze
    # Ranges of the same form. They add the versions that crash when a Ractor is created while objects are sampled (Bug
    # #18464).
    CRASHING_WITH_RACTORS = [[[3, 1, 0], [3, 1, 4]], *CRASHING].freeze
    private_constant :RACTORS_ALIVE, :CRASHING, :CRASHING_WITH_RACTORS

    # @api private
    autoload :Growth, File.join(__dir__, "object_profile/growth.rb")
    # @api private
    autoload :Holders, File.join(__dir__, "object_profile/holders.rb")
    # @api private
    autoload :Lease, File.join(__dir__, "object_profile/lease.rb")

    extend Profile::Profiler

    class << self
      # @param budget [Float] the share of the process's CPU time that the profile may take, above 0, at most 1
      # @param ractors [Symbol, nil] `:never`: this program creates no Ractor while the profile runs. Required before
      #   Ruby 3.1.4: earlier versions crash when a Ractor is created while objects are sampled
      # @param holders [Boolean] whether to find what holds the objects of lines that keep growing. If true, a separate
      #   thread watches the profile, and makes at most one heap graph in ten minutes, in a forked child. Readings
      #   include what the thread finds
      # @return [void]
      # @raise [ArgumentError] for any other budget, `ractors` or `holders`
      # @raise [Unavailable] if a profile is already running (in a forked child, perhaps the copy of its parent's
      #   profile), or if a profile cannot run
      def start(budget: BUDGET, ractors: nil, holders: false)
        refuse("holders", holders, "true, false") unless [true, false].include?(holders)
        start_session(budget: budget, ractors: ractors)
        watch if holders
        nil
      end

      # Unless a profile is running, starts one for as long as the process runs, with `holders: true`. Never raises, so
      # that it cannot make a boot fail.
      #
      # @api private
      # @yieldreturn [Boolean, Symbol] the setting `objects_profile`
      # @return [void]
      def boot
        wanted = yield
        return if running? || !wanted

        start(ractors: (:never if wanted == :no_ractors), holders: true)
        slow = snapshot.reasons[:overhead]
        warn "memscope: objects_profile: #{slow}" if slow
      rescue StandardError => e
        message = e.message.sub("start with ractors: :never", "set objects_profile to :no_ractors")
        warn "memscope: objects_profile: objects are not profiled in process #{Process.pid}: #{message}"
      end

      # @return [Profile] of the sampled objects that no garbage collection has found dead
      # @raise [Unavailable] if no profile is running
      def snapshot = recorded(Native.object_profile(false))

      # @return [Profile] the profile as of the moment it was stopped
      # @raise [Unavailable] if no profile is running
      def stop = recorded(end_session)

      # @return [Boolean]
      def running? = Native.object_profile_runs?

      # @api private
      # @return [Hash{Symbol => Object}] what Growth counts: less than a snapshot, at a fraction of its cost
      # @raise [Unavailable] if no profile is running
      def survivors = readable(Native.surviving_objects) || refuse_not_running

      # @api private
      # @return [Integer] the number of the running profile, or else of the last one; 0 if there was none
      def session = Native.object_profile_session

      # Ends the running profile, if any, without reading it.
      #
      # @api private
      # @return [void]
      def halt = Native.stop_object_profile

      # @api private
      # @return [Array<Profile::Holder>] what holds the objects of this profile's lines, as far as that was found
      def holders = @holders&.first == session ? @holders.last : []

      # Stores what holds the objects of a line: later readings of this profile include it.
      #
      # @api private
      # @param holder [Profile::Holder]
      # @return [void]
      def keep(holder)
        others = holders.reject { |one| one.path == holder.path && one.lineno == holder.lineno }
        @holders = [session, [*others, holder].freeze].freeze
      end

      # @api private
      # @return [Boolean] whether this Ruby crashes if a Ractor is created while a profile runs, so that `start` needs
      #   `ractors: :never`
      def crashing_with_ractors? = among?(RUBY_VERSION, CRASHING_WITH_RACTORS)

      # Starts another generation: objects allocated from now on belong to it. Garbage collections also start
      # generations.
      #
      # @return [Integer] its number
      # @raise [Unavailable] if no profile is running
      def next_generation
        refuse_not_running unless running?
        Native.next_object_generation
      end

      # Checks the arguments of start.
      #
      # @api private
      # @return [void]
      # @raise [ArgumentError] as start
      def check(budget: BUDGET, ractors: nil)
        refuse("budget", budget, "a number above 0, at most 1") unless budget?(budget)
        refuse("ractors", ractors, RACTORS.map(&:inspect).join(", ")) unless RACTORS.include?(ractors)
      end

      # @api private
      # @param version [String] of Ruby
      # @param ractors [Symbol, nil] as for start
      # @param alive [Integer] how many Ractors are alive
      # @return [String, nil] why objects cannot be sampled, and the remedy; nil if they can
      def obstacle(version, ractors:, alive:)
        if among?(version, CRASHING)
          return "Ruby #{version} crashes when objects are sampled (Bug #19482): use Ruby 3.2.3 or later"
        end
        return RACTORS_ALIVE if alive > 1
        return if ractors == :never || !among?(version, CRASHING_WITH_RACTORS)

        "Ruby #{version} crashes when a Ractor is created while objects are sampled (Bug #18464): use Ruby 3.1.4 or " \
          "later; or, if this program creates none, start with ractors: :never"
      end

      private

      def begin_session(budget: BUDGET, ractors: nil)
        obstacle = obstacle(RUBY_VERSION, ractors: ractors, alive: Ractor.count)
        raise Unavailable, obstacle if obstacle

        %i[Application Shares].each { |name| Profile.const_get(name) } # loaded now: a trap handler cannot load files
        Native.start_object_profile(Float(budget))
      end

      # Holders.watch takes a lock, which is not allowed in a trap handler.
      def watch
        Holders.watch
      rescue ThreadError => e
        halt
        raise Unavailable, "holders: true: #{e.message}: start the profile elsewhere, or without holders"
      end

      def end_session = Native.object_profile(true)

      def recorded(body)
        profile = Profile.of_objects(readable(body) || refuse_not_running)
        holders.empty? ? profile : profile.held_by(holders)
      end

      def budget?(budget) = [Float, Rational, Integer].include?(budget.class) && budget.positive? && budget <= MOST

      def among?(version, ranges)
        version = version.split(".").map(&:to_i)
        ranges.any? { |from, fixed| (version <=> from) >= 0 && (version <=> fixed).negative? }
      end
    end
  end
end
