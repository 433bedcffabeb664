# frozen_string_literal: true

require_relative "../forks"
require_relative "../heap_graph"
require_relative "../object_profile"

module Memscope
  module ObjectProfile
    # What holds the objects of lines that keep growing: a thread counts each line's objects after major GCs, and looks
    # in a heap graph, in a child, for paths to the sampled objects of the line that grew most. What it finds becomes
    # part of each later reading of the profile.
    #
    # @api private
    module Holders
      # Seconds between two looks at whether there was a major GC, at least; and how many times the CPU time of the last
      # reading: readings take at most a two-hundredth of the time.
      SECONDS = 10
      REST = 200
      # Seconds between two heap graphs.
      BETWEEN = 600
      # Seconds that the child may take.
      DEADLINE = 60
      # How many counts are kept.
      COUNTS = 30
      CPU = Process::CLOCK_THREAD_CPUTIME_ID
      private_constant :DEADLINE, :COUNTS, :CPU

      @lock = Mutex.new

      class << self
        # Watches the running profile until it ends. Does nothing if that is being done.
        #
        # @return [void]
        def watch
          @lock.synchronize do
            @hooked ||= Forks.listen(child: -> { forked }) && true
            next if @thread&.alive?

            # Without the interrupt mask of a caller, under which it could not be killed.
            @thread = Forks.background("memscope objects") do
              Thread.handle_interrupt(Object => :immediate) { watch_sessions }
            end
          end
          nil
        end

        # @param path [String] of the line
        # @param lineno [Integer]
        # @return [Profile::Holder, nil] what holds many of the line's sampled objects that have survived a major GC;
        #   nil if no graph could be made, or none of them is reachable
        # @raise [Unavailable] if no profile is running
        def find(path, lineno)
          objects = sampled(path, lineno)
          return if objects.empty?

          graph = HeapGraph.to_sampled(objects, "objects of #{path}:#{lineno}", deadline: DEADLINE)
          most = graph.paths.map(&:count).max or return
          # Of the paths to many of them, the one to most memory: a Proc's rather than its environment's. The first
          # path may be to a single object of the line that holds all others.
          found = graph.paths.find { |path| 2 * path.count >= most }
          Profile::Holder.capture({ path: path, lineno: lineno, links: found.links, count: found.count,
                                    sampled: graph.target_count, found_at: (graph.at.to_r * 1000).to_i })
        end

        private

        # The thread is not there in a child, but the profile is.
        def forked
          @lock = Mutex.new
          @thread = nil
          watch if ObjectProfile.running?
        end

        def watch_sessions
          watch_session(ObjectProfile.session) while wanted?
        end

        # Ends the watch under the lock: a profile that starts now is either seen here, or gets a thread from `watch`.
        def wanted?
          @lock.synchronize { ObjectProfile.running? || (@thread = nil) }
        end

        def watch_session(session)
          @counts = []
          @majors = @looked_at = nil
          rest = SECONDS
          loop do
            sleep(rest)
            return unless ObjectProfile.running? && ObjectProfile.session == session
            next if @majors == (majors = GC.stat(:major_gc_count))

            @majors = majors
            rest = [SECONDS, REST * count].max
            look
          end
        rescue Unavailable
          nil # it has been stopped, or could not be read
        end

        # @return [Float] the seconds of CPU time that it took
        def count
          since = Process.clock_gettime(CPU)
          @counts = [*@counts, Growth.count(ObjectProfile.snapshot)].last(COUNTS)
          Process.clock_gettime(CPU) - since
        end

        # A line that is known is looked at again only if no other line grows.
        def look
          lines = Growth.decide(@counts)
          return if lines.empty? || (@looked_at && Clock.now - @looked_at < BETWEEN)

          @looked_at = Clock.now
          known = ObjectProfile.holders.map { |holder| [holder.path, holder.lineno] }
          holder = find(*((lines - known).first || lines.first))
          ObjectProfile.keep(holder) if holder
        end

        # @return [String] the line's sampled objects that have survived a major GC
        def sampled(path, lineno)
          body = Native.object_profile_with_objects or raise Unavailable, "no object profile is running"
          raise Unavailable, Reasons.sentence(body) unless body.is_a?(Hash)

          objects = body.delete(:objects)
          profile = Profile.of_objects(body)
          lines = Profile::Grouping.new(profile)
          stacks = profile.stacks.zip(objects).select { |stack, _| stack.generation < profile.unjudged_generation }
          stacks.filter_map { |stack, one| one if lines.by_line(stack).then { |line| at?(line, path, lineno) } }.join
        end

        def at?(line, path, lineno) = !line.is_a?(String) && line.path == path && line.lineno == lineno
      end
    end
  end
end
