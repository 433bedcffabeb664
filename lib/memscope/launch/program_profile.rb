# frozen_string_literal: true

require_relative "in_program"

module Memscope
  module Launch
    # The malloc profile of the program that this is loaded into, from before its script until it ends, or for some
    # seconds. The program ends as it would without; but `memscope leaks` makes a success a failure where too much has
    # stayed.
    #
    # A forked process goes on with its copy of the profile, and reports it when it ends in its turn, as a worker of
    # Puma's does; `memscope leaks` judges the first process only.
    class ProgramProfile
      include InProgram

      # As many processes that one process forks are reported.
      MOST_FORKS = 64
      private_constant :MOST_FORKS

      # Ruby calls the first for every fork that goes on as Ruby, and not for Process.daemon.
      module AfterFork
        class << self
          # @api private
          # @return [ProgramProfile]
          attr_accessor :reporter
        end

        # @api private
        def _fork = super.tap { |pid| pid.zero? ? AfterFork.reporter.forked : AfterFork.reporter.count_fork }

        # @api private
        def daemon(...) = super.tap { AfterFork.reporter.go_on }
      end
      private_constant :AfterFork

      # @param order [Hash{String => String}] title, backend, rate, format, output, seconds, generations; of leaks
      #   threshold, warmup or after
      def initialize(order)
        @order = order
        @title = order["title"]
        @pid = Process.pid
        @turn = Thread::Mutex.new
        @ended = false
        @forks = 0
        @io = destination
        @io.binmode unless @io == $stderr # pprof is no text
      end

      # To be called before the program registers handlers of its own: what is registered first runs last.
      def start
        load_memscope
        require_relative "../profile/formats"
        require_relative "../profile/leaks" # now: what is loaded later would be in the profile
        profile
        at_exit { finish if Process.pid == @pid }
        Signal.trap(@order["after"]) { MallocProfile.next_generation } if @order["after"]
        watch
        follow_forks
      rescue StandardError, ScriptError => e
        give_up(e)
      end

      # In a child that has no other thread yet. Raises nothing.
      #
      # @api private
      # @return [void]
      def forked
        return if @order["threshold"]

        @ended ||= @forks >= MOST_FORKS
        @parent = @pid
        @forks = 0
        go_on
      end

      # In the parent.
      #
      # @api private
      # @return [void]
      def count_fork
        @forks += 1
        return if @forks != MOST_FORKS || @order["threshold"]

        complain("process #{@pid} has forked #{MOST_FORKS} processes: those that follow report nothing")
      end

      # What goes on as another process has this one's report to make, and none of its threads.
      #
      # @api private
      # @return [void]
      def go_on
        @pid = Process.pid
        @turn = Thread::Mutex.new
        watch unless @ended
      rescue ThreadError => e
        complain(e.message)
      end

      private

      def follow_forks
        AfterFork.reporter = self
        Process.singleton_class.prepend(AfterFork)
      end

      def watch
        @since ||= now
        background { wait_for_generations } if @order["generations"] || @order["warmup"]
        background { wait_and_report } if @order["seconds"]
      end

      # @return [Float] of so many seconds since the start, above 0 or 0
      def left(seconds) = [Float(seconds) - (now - @since), 0.0].max

      def give_up(error)
        complain("#{error.message}; the program is not started")
        File.unlink(@order["output"]) if @order["output"] && File.empty?(@order["output"])
        exit!(Integer(@order["status"]))
      end

      # Where the command line left the choice, what needs nothing set is the second one.
      def profile
        backend = @order["backend"].to_sym
        MallocProfile.start(rate: Integer(@order["rate"]), backend: backend == :auto ? :jemalloc : backend)
      rescue MallocProfile::Unavailable => e
        raise unless backend == :auto

        complain("#{e.message}; profiling by the backend imports")
        MallocProfile.start(rate: Integer(@order["rate"]), backend: :imports)
      end

      def wait_for_generations
        if @order["warmup"]
          sleep(left(@order["warmup"]))
          MallocProfile.next_generation
        end
        return unless @order["generations"]

        loop do
          sleep(Float(@order["generations"]))
          MallocProfile.next_generation
        end
      end

      def wait_and_report
        sleep(left(@order["seconds"]))
        report
      end

      # A failure stays what it is. $! is lost once something has been rescued.
      def finish
        ending = $! # rubocop:disable Style/SpecialGlobalVars
        status = report
        exit(status) if status && (ending.nil? || (ending.is_a?(SystemExit) && ending.success?))
      end

      # @return [Integer, nil] the exit status, where it says that a success is none
      def report
        @turn.synchronize do
          break if @ended

          @ended = true
          ended = MallocProfile.next_generation if @order["threshold"] # what is allocated now is not the program's
          2.times { GC.start } # what the first one leaves to finalizers is gone after the second
          profile = MallocProfile.running? ? MallocProfile.stop : MallocProfile.snapshot
          next judge(profile, ended) if @order["threshold"]

          write(profile)
          nil
        end
      rescue StandardError, ScriptError, NoMemoryError => e
        complain("nothing reported: #{e.message} (#{e.class})")
        Integer(@order["status"]) if @order["threshold"]
      end

      def judge(profile, ended)
        leaks = Profile::Leaks.new(profile, ended: ended, threshold_bytes: Integer(@order["threshold"]))
        write(leaks.profile) if leaks.judged?
        complain(leaks.verdict)
        return Integer(@order["status"]) unless leaks.judged?

        1 if leaks.any?
      end

      def write(profile)
        text = formatted(profile)
        return @io.write(text) unless @parent && @order["output"]

        path = own_path
        flags = File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW | File::BINARY
        File.open(path, flags, 0o600) { |file| file.write(text) }
        complain("process #{@pid}, forked by #{@parent}: #{path}")
      end

      def formatted(profile)
        Profile::Formats.write(profile, @order["format"].to_sym)
      rescue LoadError => e
        complain("#{e.message}; written as JSON, for memscope profile --from FILE --format=#{@order['format']}")
        Profile::Formats.write(profile, :json)
      end

      # heap.4711.html of heap.html.
      def own_path
        directory, name = File.split(@order["output"])
        stem, ending = name.match(/\A(.+?)((?:\.[A-Za-z]\w*)*)\z/m).captures
        File.join(directory, "#{stem}.#{@pid}#{ending}")
      end
    end
  end
end
