# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # The host of a Controller for Puma's cluster, in the master, which starts a new worker whenever one has ended.
    #
    # Puma's loop calls the blocks given to its events. The rest runs in memscope's thread. Each variable is written by
    # only one of these two threads.
    # @api private
    class PumaHost
      # The event that Puma fires once the application is loaded. Its name changed in Puma 7.
      BOOTED = %i[on_booted after_booted].freeze
      # Seconds to wait for a worker's answer.
      TIMEOUT = 30

      # Puma 5 has no log_writer.
      def self.log_of(launcher) = launcher.respond_to?(:log_writer) ? launcher.log_writer : launcher.events

      # Makes a single-mode Puma listen once it has booted: by then its application may have chosen the socket's path.
      def self.listen_when_booted(launcher)
        BOOTED.each { |event| launcher.events.register(event) { Listener.boot("plugin :memscope", always: true) } }
      end

      def initialize(cluster, launcher)
        @cluster = cluster
        @options = launcher.options
        @started = {}
        @begun = []
      end

      # Nothing is left to do from an earlier step.
      def advance = nil

      def supervised? = true

      # The signals TTIN and TTOU change this number.
      def workers = @options[:workers]

      def obstacle
        handles = @cluster.handles.values
        return Reasons.sentence(:puma_stopping) if handles.any? && handles.all?(&:term?)

        # A restart of all workers puts each of them into the next phase.
        Reasons.sentence(:puma_restarting) unless serving.size >= workers && handles.map(&:phase).uniq.one?
      end

      # Counts the workers that begin in place of the worker restarted last, by their first reports, which come before
      # they have booted. Puma's hook after a fork could not count them: with fork_worker, it runs in worker 0.
      def reported(worker)
        @begun |= [worker.pid] if worker.index == @restarted&.index
      end

      def members
        workers = @cluster.read.select { |worker| worker.role == :worker }
        @started = workers.to_h { |worker| [worker.pid, ProcessIdentity.of(worker.pid).started] }.compact
        workers.filter_map { |worker| member(worker) if @started.key?(worker.pid) }
      end

      # Returns whether a worker has booted in place of a restarted one, and how many died in that place before it.
      def successor(outcome)
        index, pid = outcome.worker.to_h.values_at(:index, :pid)
        booted = serving.any? { |handle| handle.index == index && handle.pid != pid }
        [booted, [(@begun - [pid]).size - 1, 0].max]
      end

      # Makes a worker finish its requests and end, or raises the reason why not.
      def restart(member)
        why = obstacle || (Reasons.sentence(:worker_stopping) unless serving?(member.pid))
        raise why if why

        @restarted = member
        @begun = []
        sent = Native.terminate(member.pid, @started.fetch(member.pid))
        raise Reasons.sentence(sent) unless %i[pidfd pid].include?(sent)

        yield
      end

      # Runs in the worker's listener thread, beside its requests.
      def purge(member, levers) = Client.new(member.pid, timeout: TIMEOUT).call(:purge, levers: levers.map(&:name))

      # Puma has a log, which takes whole lines.
      def logger = nil

      private

      def serving = @cluster.handles.each_value.select { |handle| handle.booted? && !handle.term? }

      def serving?(pid) = serving.any? { |handle| handle.pid == pid }

      def member(worker)
        started = @started[worker.pid].fdiv(Etc.sysconf(Etc::SC_CLK_TCK))
        Controller.member(worker, started_seconds: started, booted: serving?(worker.pid), exempt: exempt(worker.index))
      end

      def exempt(index) = (Reasons.sentence(:worker_forked_from) if index&.zero? && @options[:fork_worker])
    end
  end
end
