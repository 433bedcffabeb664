# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # Takes readings of this process at an interval, and delivers each, more rarely if a reading is slow, so that they
    # use at most MAX_CORE_SHARE of a core.
    # @api private
    class Watch
      # The maximum share of a core that readings use.
      MAX_CORE_SHARE = 0.005
      # Seconds to wait for the master's answer: a request to the application, or a scrape, can wait that long.
      MASTER_TIMEOUT_SECONDS = 2
      # The part of the interval after which a refused report is tried again.
      RETRY_PART = (0.1..0.9)
      # Seconds between two looks whether the first reading is there.
      POLL_SECONDS = 0.005

      attr_reader :reporter

      # `master_pid` is the pid of the master, which knows the other workers. Without a `controller`, no policy is
      # followed. Readings are at least `least` seconds apart, whatever the setting is. The block delivers a reading,
      # and returns whether it was delivered.
      def initialize(reporter, master_pid: nil, controller: nil, share: MAX_CORE_SHARE, least: 0, &deliver)
        @reporter = reporter
        @master_pid = master_pid
        @controller = controller
        @share = share
        @least = least
        @deliver = deliver
        @latest = nil
        @troubles = {}
      end

      # Returns once the thread of Runtime::Sampling has taken the first reading. It is not taken here: glibc gives that
      # thread an arena, while allocations of a worker's main thread (most for YJIT, which compiles these methods)
      # would fill holes in 1,500 pages that the worker shares with its master.
      def start
        sampling = Runtime.current.sampling
        @begun = false
        sampling.schedule(self)
        sleep POLL_SECONDS until @begun || !sampling.run?(self)
      end

      # Takes a reading, and returns the seconds to wait before the next. After all but the first, the policy acts in
      # the listener's thread, if there is one, since an action can take long.
      def call = step.tap { @begun ? @controller&.run_soon : @begun = true }

      # Starts the thread again if it was killed.
      def resume = (start unless Runtime.current.sampling.run?(self))

      # Takes one reading, delivers it, and returns the seconds to wait before the next. Raises nothing: a failed
      # reading must not end the thread or disturb the application. A reading that was not delivered does not become the
      # latest: other processes still have the reading before it, so this process's counters would seem to fall from one
      # answer to the next. Workers that were forked together report together, more than the kernel may keep: one whose
      # report was refused tries another moment.
      def step
        started = Clock.cpu
        turn_on_background_threads if @master_pid
        worker = sample
        delivered = @deliver.nil? || @deliver.call(worker)
        @latest = worker if delivered
        @troubles.delete(:at)
        pause(Clock.cpu - started) * (delivered ? 1 : rand(RETRY_PART))
      rescue StandardError => e
        @troubles[:at] = Reasons.sentence([:reading_failed, e.message, e.class.to_s])
        pause(0)
      end

      # The last reading of this process, or a new one if there is none.
      def latest = own || sample

      def own = @controller && @latest ? @latest.with(**@controller.fields) : @latest

      # The master's answer, or only this process if the master does not answer, or there is no master.
      def read(type)
        since = Cost.now
        return alone(type, :no_cluster, since) unless @master_pid

        Client.new(@master_pid, timeout: MASTER_TIMEOUT_SECONDS).call(:workers)
      rescue StandardError => e
        alone(type, [:master_silent, @master_pid.to_s, e.message.lines.first], since)
      end

      private

      def sample
        worker = @reporter.read
        @troubles.empty? ? worker : worker.with(reasons: { **worker.reasons, **@troubles })
      end

      def pause(cpu_seconds) = [Configuration.effective(:worker_interval_seconds), @least, cpu_seconds / @share].max

      def alone(type, why, since)
        type.of([latest], since: since, tier: @latest ? :T0 : :T2,
                          reasons: { workers: Reasons.sentence([:workers_alone, why]) })
      end

      # jemalloc's background threads do not survive a fork: the child has to turn them on again.
      def turn_on_background_threads
        return if @background_threads || !Configuration.effective(:background_thread)

        Loading.unit(:Tuning).apply(background_thread: true)
        @background_threads = true
        @troubles.delete(:background_thread)
      rescue ArgumentError, Purge::Busy => e
        @troubles[:background_thread] = e.message
      end
    end
  end
end
