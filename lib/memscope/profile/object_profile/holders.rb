# frozen_string_literal: true

Memscope::Loading.unit :HeapGraph

module Memscope
  module ObjectProfile
    # Finds retainers of the objects of lines that keep growing. A thread reads the profile after major GCs. For a line
    # that grows, it makes a heap graph in a forked child, and takes a path to the line's sampled objects. Later
    # readings of the profile include that path.
    # @api private
    module Holders
      # The thread checks for a major GC every SECONDS, or after REST times the CPU time of its last reading if that is
      # longer: so readings take at most a two-hundredth of the time.
      SECONDS = 60
      REST = 200
      # Minimum seconds between two heap graphs.
      BETWEEN = 600
      # A profile of fewer epochs has no two halves to compare.
      EPOCHS = 10

      @lock = Mutex.new

      class << self
        # Watches the running profile until it ends, unless a thread does so already.
        def watch(profiler)
          @lock.synchronize do
            @profiler = profiler
            @hooked ||= Forks.listen(child: -> { forked }) && true
            next if @thread&.alive?

            @thread = Forks.background("memscope objects") { watch_session(@profiler.session) while wanted? }
          end
        end

        # A path that holds many of the line's sampled objects that have survived a major GC. nil if no graph could be
        # made, or none of these objects is reachable. `body` is from ObjectProfile.with_objects.
        def find(body, path, lineno)
          objects = sampled(body, path, lineno)
          return if objects.empty?

          graph = HeapGraph.to_objects(:sampled, objects, "objects of #{path}:#{lineno}")
          most = graph.paths.map(&:count).max or return
          # Paths are sorted by memory. The first path may lead to a single object of the line, which holds all other
          # objects of the line. So the first path that leads to many objects is taken: the path to Procs, for example,
          # rather than the path to their environment.
          found = graph.paths.find { |path| 2 * path.count >= most }
          Profile::Holder.capture({ path: path, lineno: lineno, links: found.links, count: found.count,
                                    sampled: graph.target_count, found_at: (graph.at.to_r * 1000).to_i })
        end

        # Lines that keep objects of both halves of the time, as Profile::Leaks judges it. The line that keeps most of
        # the later half is first.
        def growing(profile)
          ended = profile.unjudged_generation
          return [] if ended < EPOCHS

          leaks = Profile::Leaks.new(profile, warm: 0, ended: ended, threshold: 0)
          leaks.entries.select { |entry| entry.lineno && entry.estimated? }
               .sort_by { |entry| -entry.generations.sum { |first, bytes| first < ended / 2 ? 0 : bytes } }
               .map { |entry| [entry.path, entry.lineno] }
        end

        private

        # A forked child continues the profile, but lacks the thread.
        def forked
          @lock = Mutex.new
          @thread = nil
          watch(@profiler) if @profiler.running?
        end

        # Under the lock, so that a profile that starts now is either seen here, or gets a new thread from `watch`.
        def wanted? = @lock.synchronize { @profiler.running? || (@thread = nil) }

        def watch_session(session)
          @majors = @looked_at = nil
          rest = SECONDS
          loop do
            sleep(rest)
            return unless @profiler.running? && @profiler.session == session
            next if @majors == (majors = GC.stat(:major_gc_count))

            @majors = majors
            since = Clock.cpu
            lines = growing(@profiler.snapshot)
            rest = [SECONDS, REST * (Clock.cpu - since)].max
            look(lines - @profiler.holders.map { |holder| [holder.path, holder.lineno] })
          end
        rescue Unavailable
          nil # the profile has been stopped, or could not be read
        end

        def look(lines)
          return if lines.empty? || (@looked_at && Clock.now - @looked_at < BETWEEN)

          @looked_at = Clock.now
          find(@profiler.with_objects, *lines.first)&.then { |holder| @profiler.keep(holder) }
        end

        # The line's sampled objects that have survived a major GC, packed.
        def sampled(body, path, lineno)
          objects = body.delete(:objects)
          profile = Profile.capture(body)
          lines = Profile::Grouping.new(profile)
          judged = body[:stacks].zip(objects).select { |stack, _| stack[:generation] < profile.unjudged_generation }
          of_line = judged.select do |stack, _|
            line = lines.by_line(Profile::Stack.capture(stack))
            !line.is_a?(String) && [line.path, line.lineno] == [path, lineno]
          end
          of_line.map(&:last).join
        end
      end
    end
  end
end
