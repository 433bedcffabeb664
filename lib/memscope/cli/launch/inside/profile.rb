# frozen_string_literal: true

module Memscope
  module Launch
    # Profiles malloc, or Ruby's objects, in the program, from before the script starts until the program ends, or for
    # some seconds. The program ends as it would without a profile.
    #
    # A forked process, such as a Puma worker, continues with its copy of the profile and reports it when the process
    # ends.
    class ProgramProfile < Inside
      # @param order [Hash{Symbol => Object}] as for Inside, and format, by, seconds; backend and rate, or objects and
      #   budget
      def initialize(order)
        super
        @io.binmode unless @io == $stderr # pprof is binary
      end

      def start
        load_memscope
        Loading.unit(:Profile) # loaded later, its memory would be part of the profile
        profile
        report_at_exit
        watch
        Forks.listen(child: method(:forked), daemon: method(:continue))
      rescue StandardError, ScriptError => e
        give_up(e.message)
      end

      private

      def forked
        @parent = @pid
        continue
      end

      # The new process must report too, but inherits no threads, so this method starts them again.
      def continue
        @pid = Process.pid
        @turn = Thread::Mutex.new
        watch unless @ended
      rescue ThreadError => e
        complain(e.message)
      end

      def watch = after(@order[:seconds], "report") { report(ending: true) }

      # Runs the block in a thread, so many seconds after the start, or never if seconds is nil.
      def after(seconds, name)
        @since ||= Clock.now
        seconds && background(name) do
          sleep([seconds - (Clock.now - @since), 0.0].max)
          yield
        end
      end

      def objects? = @order[:objects]

      def profiler = objects? ? ObjectProfile : MallocProfile

      # Without a choice on the command line, the backend is jemalloc if its profiler is enabled, else imports, which
      # needs no settings.
      def profile
        return ObjectProfile.start(budget: @order[:budget]) if objects?

        backend = @order[:backend]
        backend = Native.jemalloc_profiling == :on ? :jemalloc : :imports if backend == :auto
        MallocProfile.start(rate: @order[:rate], backend: backend)
      end

      def write(_ending)
        2.times { GC.start } # the second one frees objects that the first left to finalizers
        deliver(last)
      end

      def last = profiler.running? ? profiler.stop : profiler.snapshot

      def deliver(profile)
        page = @order[:format] == :text
        text = profile.formatted(@order[:format], by: @order[:by], **(page ? @order[:display] : {}))
        text = dated(text) if page
        return @io.write(text) unless @parent && @order[:output]

        path = own_path
        File.open(path, "wbx", 0o600) { |file| file.write(text) }
        complain(:of_fork, pid: @pid, parent: @parent, path: path)
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
