# frozen_string_literal: true

require "json"
require_relative "../remote/sockets"
require_relative "controller"
require_relative "supervisor"

module Memscope
  class Workers < Reading
    # The host of a Controller for a process that acts on itself: the only process of a server. It can be restarted if
    # it is Sidekiq's, and if something starts it again.
    #
    # @api private
    class SingleHost
      # Seconds that a quieted Sidekiq must be idle: more than the 2 seconds that a fetch under way may still wait for a
      # job, which Sidekiq then requeues.
      IDLE = 5
      # Seconds between lines in the log that say that jobs keep Sidekiq from ending.
      PATIENCE = 900
      # A job that has run for this many seconds may run for ever: nothing ends a job but itself.
      LONG_JOB = 900
      private_constant :IDLE, :PATIENCE, :LONG_JOB

      # @param log [#log, nil] where lines go if no logger is configured: Puma's log
      def initialize(log = nil)
        @log = log
      end

      # @return [Array<Hash>] the restart that led to this process: a Policy::Outcome's fields; none if it is not known
      def earlier_restarts
        sidekiq ? Evidence.left.map { |outcome| { **outcome, booted_seconds: Clock.now.round(3) } } : []
      end

      # Once Sidekiq is quiet, waits for its jobs, however long they take, and then ends Sidekiq: it cannot resume.
      #
      # @return [void]
      def advance
        return if @quiet_since.nil? || @ended

        now = Clock.now
        jobs = work
        @busy_at = now unless jobs == []
        if now - @busy_at >= IDLE
          @ended = true
          Process.kill(:TERM, Process.pid)
        elsif now - @said_at >= PATIENCE && jobs&.any?
          @said_at = now
          log("policy: still waits for #{jobs.size} jobs (#{job_classes(jobs).join(', ')}), " \
              "#{(now - @quiet_since).round} s after Sidekiq became quiet")
        end
      end

      # @return [Symbol, nil]
      def supervisor = (@supervisor ||= [(Supervisor.of_this_process if sidekiq)]).first

      # @return [Integer]
      def workers = 1

      # @return [String, nil] why nothing may be done now
      def obstacle = ("Sidekiq is quiet, and about to end" if @quiet_since || sidekiq&.stopping?)

      # @return [Array<Policy::Member>]
      def members
        worker = Workers.own or return []

        @first ||= worker.leaves
        @started ||= Clock.now.round(3)
        [Controller.member(worker, started_seconds: @started, booted: true, busy: busy,
                                   exempt: ("it is not Sidekiq's process" unless sidekiq))]
      end

      # The successor is never seen here: this process has ended by then.
      def successor(_outcome) = [false, 0]

      # Makes Sidekiq accept no more jobs; `advance` does the rest.
      #
      # @param outcome [Hash] of this restart, which this process's successor measures
      # @return [void]
      # @raise [RuntimeError] saying why not
      def restart(_member, outcome)
        why = obstacle || unending || ("another process of this container is being restarted" unless alone?)
        raise why if why

        Process.kill(:TSTP, Process.pid)
        @quiet_since = @busy_at = @said_at = Clock.now
        Evidence.leave({ **outcome.except(:others), executed: true })
      end

      def purge(_member, levers) = Purge.run(levers, arena: nil, dry_run: false, settle: 0)

      def census(_pid) = Census.bounded

      # @return [Array(Worker, Hash)]
      def reports(_pid) = [Workers.own, @first]

      # @param text [String]
      # @return [void]
      def log(text)
        logger = Workers.setting(:logger) || (::Sidekiq.logger if sidekiq)
        logger ? logger.info("memscope: #{text}") : @log&.log("memscope: #{text}")
      end

      private

      # Only for Sidekiq's own program, which handles TSTP: the signal would suspend any other process.
      def sidekiq = (::Sidekiq::CLI.instance.launcher if defined?(::Sidekiq::CLI))

      # Why Sidekiq might never end: running jobs are not cut short.
      def unending
        jobs = work or return "its jobs cannot be counted"
        long = jobs.select { |job| Time.now.to_f - job[:run_at].to_f > LONG_JOB }
        "a job of #{job_classes(long).first} has run for more than #{LONG_JOB / 60} minutes" if long.any?
      end

      # Locks a file until this process ends: the processes of a container reach the limit together, but only one at a
      # time may be quiet.
      def alone?
        path = File.join(Sockets.directory(Workers.setting(:socket_directory)), "restart-#{Evidence.place}.lock")
        @lock ||= File.open(path, File::RDWR | File::CREAT | File::NOFOLLOW | File::NONBLOCK, 0o600)
        @lock.flock(File::LOCK_EX | File::LOCK_NB)
      end

      def busy = work&.size

      # What Sidekiq's threads work on: hashes with `payload`, a Hash or its JSON, and `run_at`, when the job began.
      # Sidekiq 5 called the constant WORKER_STATE.
      def work
        return unless sidekiq

        name = %i[WORK_STATE WORKER_STATE].find { |constant| ::Sidekiq::Processor.const_defined?(constant) }
        name && ::Sidekiq::Processor.const_get(name).dup.values
      end

      # Active Job's adapter puts the job's own class under `wrapped`.
      def job_classes(jobs)
        jobs.map do |job|
          payload = job[:payload]
          payload = JSON.parse(payload) if payload.is_a?(String)
          payload["wrapped"] || payload["class"]
        end.uniq
      end
    end
  end
end
