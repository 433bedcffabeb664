# frozen_string_literal: true

require_relative "profile"

module Memscope
  module Launch
    # Profiles the program as ProgramProfile does, and turns success into failure if a line still holds too much memory,
    # or too many objects, that it allocated after the warm-up. Forked processes are not judged.
    class ProgramLeaks < ProgramProfile
      # Maximum lines for which --objects looks for the retainers of the objects that they allocated.
      MAX_RETAINED = 3

      private

      def forked = nil

      def watch
        super
        after(@order[:warmup], "warm-up") do
          generation = profiler.next_generation
          @warm = generation if @warm.nil? # a daemon comes here again
        end
      end

      # The first generation after the warm-up. For objects, nil if the warm-up has not ended: only `watch` ends it,
      # since garbage collections begin generations too. For malloc, the program may also have begun generation 1.
      def warm = objects? ? @warm : 1

      # Leaves a failure of the program as it is. Reads $! first: any rescue resets it.
      def finish
        ending = $! # rubocop:disable Style/SpecialGlobalVars
        @status = @order[:status]
        report(ending: true)
        exit(@status) if @status && (ending.nil? || (ending.is_a?(SystemExit) && ending.success?))
      end

      # Sets the exit status that replaces success, or nil if none does.
      def write(_ending)
        ended = profiler.next_generation # later allocations are not the program's
        2.times { GC.start } # the second one frees objects that the first left to finalizers
        @status = judge(ended)
      end

      # Retainers of objects can be found only while the objects are sampled, so the profile of objects goes on.
      def judge(ended)
        leaks = Profile::Leaks.new(objects? ? profiler.snapshot : last, warm: warm, ended: ended,
                                                                        threshold: @order[:threshold])
        leaks.held_by(retainers(leaks.entries.first(MAX_RETAINED))) if objects?
        deliver(leaks.profile) unless leaks.verdict == :too_early
        complain(leaks.to_s)
        { too_early: @order[:status], leak: 1 }[leaks.verdict]
      end

      def retainers(entries)
        entries.select(&:lineno).filter_map do |entry|
          ObjectProfile::Holders.find(ObjectProfile.with_objects, entry.path, entry.lineno)
        end
      end
    end
  end
end
