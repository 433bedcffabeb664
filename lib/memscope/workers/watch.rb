# frozen_string_literal: true

require_relative "sampler"

module Memscope
  class Workers < Reading
    # A thread that takes readings of this process at an interval, and hands each on. It sleeps in between, and longer
    # where a reading takes long: of a core it uses at most SHARE.
    #
    # @api private
    class Watch
      # The most of a core that readings may use.
      SHARE = 0.005
      # Seconds in which the master answers, from its table.
      PATIENCE = 5
      private_constant :SHARE, :PATIENCE

      # @return [Integer] the process that it is for
      attr_reader :pid

      # @return [Sampler]
      attr_reader :sampler

      # @param sampler [Sampler]
      # @param master_pid [Integer, nil] whom to ask for the other workers
      # @yieldparam worker [Worker] each reading
      def initialize(sampler, master_pid: nil, &deliver)
        @pid = Process.pid
        @sampler = sampler
        @master_pid = master_pid
        @deliver = deliver
        @latest = nil
        @troubles = {}
      end

      # Takes the first reading before it returns: from then on only its thread does.
      #
      # @return [Thread] that Puma does not warn of
      def start
        seconds = step
        thread = Thread.new do
          loop do
            sleep(seconds)
            seconds = step
          end
        end
        thread.name = "memscope workers"
        thread.thread_variable_set(:fork_safe, true)
        thread
      end

      # Takes one reading, and hands it on. Raises nothing: a reading that fails must not end the thread, nor disturb
      # the application.
      #
      # @return [Float] seconds to wait before the next
      def step
        started = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
        turn_on_background_threads if @master_pid
        @latest = sample
        @deliver&.call(@latest)
        pause(Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - started)
      rescue StandardError => e
        @troubles[:at] = "a reading failed: #{e.message} (#{e.class})"
        pause(0)
      end

      # @return [Worker] this process: the last reading, or one now where there is none
      def latest = @latest || sample

      # @return [Workers] what the master says of all; where it does not answer, or there is none, only this process
      def read
        since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        return alone("there is no master that other processes would report to", since) unless @master_pid

        Client.new(@master_pid, timeout: PATIENCE).call(:workers)
      rescue StandardError => e
        alone("Puma's master (pid #{@master_pid}) does not answer: #{e.message.lines.first}", since)
      end

      private

      def sample
        worker = @sampler.read
        @troubles.empty? ? worker : worker.with(reasons: { **worker.reasons, **@troubles })
      end

      def pause(cpu_seconds) = [Workers.setting(:worker_interval_seconds), cpu_seconds / SHARE].max

      def alone(why, since)
        known = @latest
        Workers.of([latest], since: since, tier: known ? :T0 : :T2, reasons: { workers: "only this process: #{why}" })
      end

      # A forked child has none of jemalloc's until it asks for them.
      def turn_on_background_threads
        return if @background_threads || !Workers.setting(:background_thread)

        require_relative "../tuning"
        Tuning.apply(arena: nil, dirty_decay_ms: nil, muzzy_decay_ms: nil, background_thread: true)
        @background_threads = true
        @troubles.delete(:background_thread)
      rescue ArgumentError, Purge::Busy => e
        @troubles[:background_thread] = e.message
      end
    end
  end
end
