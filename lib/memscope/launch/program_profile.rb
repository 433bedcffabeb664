# frozen_string_literal: true

module Memscope
  module Launch
    # Profiles malloc, or Ruby's objects, in the program that loads this file, from before the script starts until the
    # program ends, or for some seconds.
    # The program ends as it would without a profile, except that `memscope leaks` turns success into failure if too
    # much memory stays.
    #
    # A forked process, such as a Puma worker, continues with its copy of the profile and reports it when the process
    # ends; `memscope leaks` judges the first process only.
    class ProgramProfile
      # How many forks of one process report.
      MOST_FORKS = 64
      # For how many lines `memscope leaks --objects` looks for the holders of the objects that they allocated.
      MOST_HOLDERS = 3
      private_constant :MOST_FORKS, :MOST_HOLDERS

      # @param order [Handoff::Order] title, status, format, by, output, seconds, generations, those of Order#display;
      #   backend and rate, or objects and budget; for leaks also threshold, and warmup or after
      def initialize(order)
        @order = order
        @pid = Process.pid
        @turn = Thread::Mutex.new
        @ended = false
        @forks = 0
        @io = order.output
        @io.binmode unless @io == $stderr # pprof is binary
      end

      # To be called before the program registers its own at_exit handlers: the first one registered runs last.
      def start
        @order.load_memscope
        # Required before the profile starts: required later, their memory would be part of the profile.
        require_relative "../forks"
        require_relative "../profile/formats"
        require_relative "../profile/leaks"
        profile
        at_exit { finish if Process.pid == @pid }
        Signal.trap(@order[:after]) { end_warm_up } if @order[:after]
        watch
        Forks.listen(child: method(:forked), parent: method(:count_fork), daemon: method(:continue))
      rescue StandardError, ScriptError => e
        give_up(e)
      end

      private

      def forked
        return if @order[:threshold]

        @ended ||= @forks >= MOST_FORKS
        @parent = @pid
        @forks = 0
        continue
      end

      def count_fork
        @forks += 1
        return if @forks != MOST_FORKS || @order[:threshold]

        @order.complain("process #{@pid} has forked #{MOST_FORKS} processes; later ones do not report")
      end

      # The new process must report too, but inherits no threads, so this method starts them again.
      def continue
        @pid = Process.pid
        @turn = Thread::Mutex.new
        watch unless @ended
      rescue ThreadError => e
        @order.complain(e.message)
      end

      def watch
        @since ||= Clock.now
        @order.background { wait_for_generations } if @order[:generations] || @order[:warmup]
        @order.background { wait_and_report } if @order[:seconds]
      end

      # How many of the given seconds, counted from the start, are left.
      def left(seconds) = [seconds - (Clock.now - @since), 0.0].max

      def give_up(error)
        @order.complain("#{error.message}; the program is not started")
        File.unlink(@order[:output]) if @order[:output] && File.empty?(@order[:output])
        exit!(@order[:status])
      end

      def objects? = @order[:objects]

      def profiler = objects? ? ObjectProfile : MallocProfile

      def profile = objects? ? ObjectProfile.start(budget: @order[:budget]) : profile_malloc

      # Without a choice on the command line, the backend is jemalloc if its profiler is ready, else imports, which
      # needs no settings.
      def profile_malloc
        backend = @order[:backend]
        MallocProfile.start(rate: @order[:rate], backend: backend == :auto ? :jemalloc : backend)
      rescue MallocProfile::Unavailable => e
        raise unless backend == :auto

        @order.complain("#{e.message}; profiling with the backend imports")
        MallocProfile.start(rate: @order[:rate], backend: :imports)
      end

      def wait_for_generations
        if @order[:warmup]
          sleep(left(@order[:warmup]))
          end_warm_up
        end
        return unless @order[:generations]

        loop do
          sleep(@order[:generations])
          profiler.next_generation
        end
      end

      # Later calls only begin another generation.
      def end_warm_up
        generation = profiler.next_generation
        @warm = generation if @warm.nil?
      end

      # The first generation after the warm-up. For objects, nil if the warm-up has not ended: only `end_warm_up` ends
      # it, since garbage collections begin generations too. For malloc, the program may also have begun generation 1.
      def warm = objects? ? @warm : 1

      def wait_and_report
        sleep(left(@order[:seconds]))
        report
      end

      # Leaves a failure of the program as it is. Reads $! first: any rescue resets it.
      def finish
        ending = $! # rubocop:disable Style/SpecialGlobalVars
        status = report
        exit(status) if status && (ending.nil? || (ending.is_a?(SystemExit) && ending.success?))
      end

      # @return [Integer, nil] the exit status that replaces success; nil if none does
      def report
        @turn.synchronize do
          break if @ended

          @ended = true
          ended = profiler.next_generation if @order[:threshold] # later allocations are not the program's
          2.times { GC.start } # the second one frees objects that the first left to finalizers
          next judge(ended) if @order[:threshold]

          write(last)
          nil
        end
      rescue StandardError, ScriptError, NoMemoryError => e
        @order.complain("no report: #{e.message} (#{e.class})")
        @order[:status] if @order[:threshold]
      end

      def last = profiler.running? ? profiler.stop : profiler.snapshot

      def holders(entries)
        entries.select(&:lineno).filter_map { |entry| ObjectProfile::Holders.find(entry.path, entry.lineno) }
      end

      # The holders of objects can be found only while the objects are sampled, so the profile of objects goes on.
      def judge(ended)
        profile = objects? ? profiler.snapshot : last
        leaks = Profile::Leaks.new(profile, warm: warm, ended: ended, threshold: @order[:threshold])
        leaks.held_by(holders(leaks.entries.first(MOST_HOLDERS))) if objects?
        write(leaks.profile) if leaks.judged?
        @order.complain(leaks.verdict)
        return @order[:status] unless leaks.judged?

        1 if leaks.any?
      end

      def write(profile)
        view = @order[:format] == :text ? @order.display(@io) : {}
        text = Profile::Formats.write(profile, @order[:format], by: @order[:by], **view)
        return @io.write(text) unless @parent && @order[:output]

        path = own_path
        flags = File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW | File::BINARY
        File.open(path, flags, 0o600) { |file| file.write(text) }
        @order.complain("process #{@pid}, forked by #{@parent}: #{path}")
      end

      # heap.4711.html for heap.html.
      def own_path
        directory, name = File.split(@order[:output])
        stem, ending = name.match(/\A(.+?)((?:\.[A-Za-z]\w*)*)\z/m).captures
        File.join(directory, "#{stem}.#{@pid}#{ending}")
      end
    end
  end
end
