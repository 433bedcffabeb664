# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # Starts, records and reads a profile, or gives the reason why it cannot. Each profiler is a module that is extended
    # with this one, and has `check`, `running?`, and three private methods. `begin_session(**options)` returns the
    # started profile's number, :running or a reason. `end_session` ends the profile. `recorded` makes a Profile of the
    # result of `end_session`.
    # @api private
    module Profiler
      # @return [Lease] through which other processes start, read and stop this profile
      attr_reader :lease

      # @return [String] "malloc profile" for MallocProfile
      def noun = name[/\w+\z/].gsub(/\B[A-Z]/, ' \0').downcase

      # @return [Integer] the number of the started profile
      def start_session(**options)
        check(**options)
        refuse_running if running?
        raise Unavailable.new(:extension_absent, Native.absence) if Native.absence

        started = begin_session(**options)
        return started if started.is_a?(Integer)

        refuse_running if started == :running # another thread started one first
        raise Unavailable.new(:profile_unstarted, noun, started)
      end

      # Profiles a block, for Memscope.malloc_profile and Memscope.object_profile.
      def record(**options)
        raise ArgumentError, "Memscope.#{noun.tr(' ', '_')}: no block given" unless block_given?

        started = ended = nil
        begin
          # Interrupts are deferred until `started` is set, so that no profile is left running.
          Thread.handle_interrupt(Object => :never) { started = start_session(**options) }
          yield
        ensure
          ended = end_session if started
        end
        recorded(ended)
      end

      private

      # `body` is from Native: a profile, why it could not be read, or nil for none.
      def readable(body)
        return body if body.nil? || body.is_a?(Hash)

        raise Unavailable.new(:profile_unreadable, noun, body)
      end

      def refuse(argument, given, allowed) = Field.refuse(argument, given, allowed, call: "#{name}.start")

      def refuse_running = raise(Unavailable.new(:profile_running, noun[0] == "o" ? "an" : "a", noun, name))

      def refuse_not_running = raise(Unavailable.new(:profile_not_running, noun, name))
    end
  end
end
