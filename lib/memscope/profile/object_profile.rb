# frozen_string_literal: true

Memscope::Loading.unit :Profile

module Memscope
  # Which Ruby lines keep objects alive. Samples allocations, as many as its budget allows, and drops each sample when
  # the garbage collector finds its object dead. From Ruby 3.3 on, cheap enough to be always on.
  #
  # One profile runs at a time, for the whole process, whichever thread starts it. A forked child continues its own copy
  # of its parent's profile until the child stops it. Then it can start another one.
  #
  #     Memscope::ObjectProfile.start
  #     # … a while later
  #     puts Memscope::ObjectProfile.snapshot
  #
  # The profile keeps no object, class or method alive. It needs a program without other Ractors: it does not start
  # while one is alive, and ends when one is created, with a last reading as of then.
  module ObjectProfile
    # The default share of the process's CPU time.
    BUDGET = 0.01
    # The largest budget: every allocation is watched.
    MAX_SHARE = 1

    # Ruby versions that crash when objects are sampled (Bug #19482).
    CRASHING = %w[3.2.0 3.2.1 3.2.2].freeze
    # Where a backtrace shows a call of Ractor.new: since Ruby 3.4, by the caller's line.
    IN_RACTOR_NEW = /\A<internal:ractor>:\d+:in .new'|'Ractor\.new'\z/
    private_constant :CRASHING, :IN_RACTOR_NEW

    # @api private
    autoload :Holders, File.join(__dir__, "object_profile/holders.rb")

    extend Profile::Profiler

    # Since somebody looks at the profile, Holders watches it from then on.
    @lease = Profile::Lease.new(self, keep: true) { Holders.watch(self) }

    class << self
      # @param budget [Float] the share of the process's CPU time that the profile may take, above 0, at most 1
      # @param holders [Boolean] whether to find retainers of objects of lines that keep growing. If true, a separate
      #   thread watches the profile, and makes at most one heap graph in ten minutes, in a forked child. Readings
      #   include them
      # @return [void]
      # @raise [ArgumentError] for any other budget or `holders`
      # @raise [Unavailable] if a profile is already running (in a forked child, perhaps the copy of its parent's
      #   profile), or if a profile cannot run
      def start(budget: BUDGET, holders: false)
        refuse("holders", holders, "true, false") unless [true, false].include?(holders)
        start_session(budget: budget)
        watch if holders
        nil
      end

      # Unless a profile is running, starts one for as long as the process runs, with `holders: true`. Never raises, so
      # that it cannot make a boot fail.
      # @api private
      # @yieldreturn [Boolean] the setting `objects_profile`
      def boot
        return if !yield || running?

        start(holders: true)
        slow = snapshot.reasons[:overhead]
        warn "memscope: objects_profile: #{slow}" if slow
      rescue StandardError => e
        warn "memscope: objects_profile: objects are not profiled in process #{Process.pid}: #{e.message}"
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
      # @return [Hash{Symbol => Object}] the running profile, with its live objects
      def with_objects = readable(Native.object_profile_with_objects) || refuse_not_running

      # @api private
      # @return [Integer] the number of the running profile, or else of the last one; 0 if there was none
      def session = Native.object_profile_session

      # Ends the running profile, if any, without reading it.
      # @api private
      def halt = Native.stop_object_profile

      # @api private
      # @return [Array<Profile::Holder>] those found so far for lines of this profile
      def holders = @holders&.first == session ? @holders.last : []

      # Later readings of this profile include this holder.
      # @api private
      def keep(holder)
        others = holders.reject { |one| one.path == holder.path && one.lineno == holder.lineno }
        @holders = [session, [*others, holder].freeze].freeze
      end

      # Starts another generation: objects allocated from now on belong to it. Garbage collections also start
      # generations.
      #
      # @return [Integer] its number
      # @raise [Unavailable] if no profile is running
      def next_generation = running? ? Native.next_object_generation : refuse_not_running

      # @api private
      def check(budget: BUDGET) = (refuse("budget", budget, "a number above 0, at most 1") unless budget?(budget))

      # @api private
      def budget?(budget) = [Float, Rational, Integer].include?(budget.class) && budget.positive? && budget <= MAX_SHARE

      # If there is no obstacle, all hooks for allocations are removed before the main Ractor creates another.
      # @api private
      # @return [String, nil] why allocations cannot be hooked now; nil if they can
      def obstacle(version = RUBY_VERSION) = Reasons.sentence(hooks_obstacle(version))

      private

      def begin_session(budget: BUDGET)
        why = hooks_obstacle(RUBY_VERSION)
        raise Unavailable.new(*why) if why

        # Loaded now: a trap handler cannot load files.
        %i[Application Libraries Shares].each { |name| Profile.const_get(name) }
        Native.start_object_profile(Float(budget))
      end

      def hooks_obstacle(version)
        return [:objects_crash, version] if CRASHING.include?(version)

        watch_ractors unless Native.ractors_watched?
        Native.hooks_obstacle || (:ractor_begins if @creating && creating?)
      end

      # Holders.watch takes a lock, which is not allowed in a trap handler.
      def watch
        Holders.watch(self)
      rescue ThreadError => e
        halt
        raise Unavailable.new(:holders_unwatched, e.message)
      end

      def end_session = Native.object_profile(true)

      def recorded(body)
        profile = Profile.capture(readable(body) || refuse_not_running)
        holders.empty? ? profile : profile.held_by(holders)
      end

      # The watch does not see threads that are within Ractor.new already. In Ruby 3.1 it would make YJIT discard all
      # compiled code for good.
      def watch_ractors
        return if Native.hooks_obstacle == :ractors_unsampled
        return if RUBY_VERSION < "3.2" && defined?(RubyVM::YJIT.enabled?) && RubyVM::YJIT.enabled?

        method = rubys_own_new or return
        Native.watch_ractors(method)
        @creating = true
      end

      # True if a thread was within Ractor.new when the watch began, and still may be.
      def creating? = @creating = Thread.list.any? { |thread| thread.backtrace.to_a.grep(IN_RACTOR_NEW).any? }

      # Ractor.new may be prepended or redefined. Ruby's own then has another name, or is a method that super calls.
      def rubys_own_new
        named = Ractor.singleton_methods.map { |name| Ractor.method(name) }
        called = Enumerator.produce(Ractor.method(:new), &:super_method).take_while(&:itself)
        [*called, *named].find { |one| one.original_name == :new && one.source_location&.first == "<internal:ractor>" }
      end
    end
  end
end
