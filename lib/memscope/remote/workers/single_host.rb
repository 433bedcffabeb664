# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # The host of a Controller for a process that acts on itself: the only process of a server. The setting
    # `policy_supervised` declares whether something starts it again.
    # @api private
    class SingleHost
      # Seconds for which a quieted Sidekiq may still fetch a job, and then some.
      FETCH_TIMEOUT = 5
      # Seconds to wait for a quieted Sidekiq's jobs. TERM then makes it put them back into their queues.
      JOBS_TIMEOUT = 900

      # Ends a quieted Sidekiq once its jobs have ended.
      def advance
        return if @jobs.nil? || Clock.now - @quiet_since < (@jobs.size.positive? ? JOBS_TIMEOUT : FETCH_TIMEOUT)

        @jobs = nil
        Process.kill(:TERM, Process.pid)
      end

      def supervised? = Configuration.effective(:policy_supervised)

      def workers = 1

      def obstacle = (Reasons.sentence(:ending) if @quiet_since || sidekiq&.stopping?)

      def members
        @started ||= Clock.boot.round(3)
        own = Runtime.current.workers&.own
        own ? [Controller.member(own, started_seconds: @started, booted: true)] : []
      end

      # The successor is never seen here: this process has ended by then.
      def successor(_outcome) = [false, 0]

      # Ends this process, Sidekiq's only after its jobs. Raises if another process is ending. A quieted Sidekiq takes
      # no jobs, so only one process of this user may be quiet at a time: the lock lasts until the process has ended.
      def restart(_member)
        raise Reasons.sentence(:another_restarting) unless lock.flock(File::LOCK_EX | File::LOCK_NB)

        @jobs = ::Sidekiq::Processor::WORK_STATE if sidekiq
        @quiet_since = Clock.now
        yield
        Process.kill(@jobs ? :TSTP : :TERM, Process.pid)
      end

      def purge(_member, levers) = Purge.run(levers)

      def logger = (::Sidekiq.logger if sidekiq)

      private

      # Only for Sidekiq's own program, which handles TSTP: the signal would suspend any other process.
      def sidekiq = (::Sidekiq::CLI.instance.launcher if defined?(::Sidekiq::CLI))

      # The directory of the sockets, which is this user's own.
      def lock = @lock ||= File.open(Sockets.directory(Configuration.effective(:socket_directory)))
    end
  end
end
