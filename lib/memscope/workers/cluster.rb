# frozen_string_literal: true

require "json"
require "socket"
require_relative "../workers"
require_relative "puma_host"

module Memscope
  class Workers < Reading
    # Carries the workers' reports to their master, over a pair of datagram sockets made before the fork, which no other
    # process can open. A report is one datagram. No worker waits: if the master falls behind, reports are dropped.
    #
    # @api private
    class Channel
      # The largest report, in bytes; 2 to 8 KiB is usual, 30 KiB with tags. By default the kernel queues 208 KiB from
      # one sender (net.core.wmem_default), and accepts no datagram larger than that.
      LIMIT = 65_536
      # The parts that are left out of a larger report, in this order.
      LARGE = %i[arenas tags].freeze
      private_constant :LIMIT, :LARGE

      def initialize
        @reader, @writer = UNIXSocket.pair(:DGRAM)
      end

      # Closes this process's copy of the end that only the master needs, so that no datagrams are queued once the
      # master has ended.
      #
      # @return [void]
      def keep_writer = @reader.close

      # @param worker [Worker]
      # @return [Boolean] whether the report was sent
      def send(worker)
        @writer.sendmsg_nonblock(text(worker), exception: false) != :wait_writable
      rescue SystemCallError, IOError
        false
      end

      # @param seconds [Float] the longest wait
      # @return [Worker, nil] nil if no report came in time, or if it is invalid
      def receive(seconds)
        return unless @reader.wait_readable(seconds)

        text = @reader.recv_nonblock(LIMIT, exception: false)
        Worker.from_h(JSON.parse(text)) unless text == :wait_readable
      rescue JSON::ParserError, ArgumentError
        nil
      end

      private

      # The report as JSON, without what makes it too large, as arenas do on a machine with hundreds of processors.
      def text(worker)
        text = worker.to_json
        LARGE.select { |part| worker.public_send(part) }.each do |part|
          break if text.bytesize <= LIMIT

          why = "left out: with #{part}, the report would have #{text.bytesize} bytes, and the limit is #{LIMIT}"
          worker = worker.with(part => nil, reasons: { **worker.reasons, part => why })
          text = worker.to_json
        end
        text
      end
    end

    # Puma's cluster. The plugin creates it in the master before the first fork, so that each worker has a copy; the
    # master keeps the last report of each worker.
    #
    # Only memscope's thread in the master writes @reports, and only Puma's loop writes @handles; each replaces one
    # frozen Hash with another, so that readers need no lock.
    #
    # @api private
    class Cluster
      # A worker is marked as silent if it has not reported for this many intervals and at least this many seconds.
      SILENT = { intervals: 3, seconds: 60 }.freeze
      private_constant :SILENT

      # @return [Integer] pid of the master
      attr_reader :pid

      # @param launcher [Puma::Launcher, nil] nil: no policy is followed
      def initialize(launcher = nil)
        @pid = Process.pid
        @channel = Channel.new
        @reports = {}.freeze
        @handles = {}.freeze
        return unless launcher

        @host = PumaHost.new(self, launcher)
        @controller = Controller.new(@host)
      end

      # Runs in a worker, right after the fork. The worker listens even if the setting `listen` is false: a purge of the
      # workers needs the socket of each.
      #
      # @param index [Integer] Puma's number of the worker
      # @return [void]
      def boot_worker(index)
        @channel.keep_writer
        listen("worker #{index} cannot be asked")
        watch = Watch.new(Sampler.new(role: :worker, index: index), master_pid: @pid) { |worker| @channel.send(worker) }
        History.start if Workers.setting(:history) # before the first reading, which the history uses
        watch.start
        Workers.current = watch
      end

      # Runs in a process that has forked a worker: the master or, with fork_worker, worker 0.
      #
      # @return [void]
      def forked
        watch = Workers.current
        watch.sampler.rebase if watch.is_a?(Watch)
      end

      # Runs in the master, at each ping from a worker.
      #
      # @param handle [Puma::Cluster::WorkerHandle]
      # @return [void]
      def saw(handle)
        @handles = handles.merge(handle.pid => handle).freeze unless @handles[handle.pid].equal?(handle)
      end

      # @return [Hash{Integer => Puma::Cluster::WorkerHandle}] Puma's workers by pid, once they have booted, and until
      #   they have ended
      def handles = living(@handles)

      # Runs in a thread of the master: answers workers over the master's listener, and receives their reports.
      #
      # @return [void] never returns
      def serve
        listen("workers cannot ask their master")
        run
      end

      # Receives reports, and takes readings of this process itself.
      #
      # @return [void] never returns
      def run
        History.start if Workers.setting(:history)
        @watch = Watch.new(Sampler.new(role: :master))
        due = Clock.now + @watch.step
        Workers.current = self
        loop do
          receive([due - Clock.now, 0].max) while Clock.now < due
          due = Clock.now + @watch.step
          @controller&.step
        end
      end

      # Puma started the thread of `serve`: nothing here could start it again.
      #
      # @return [void]
      def resume = nil

      # @return [Worker, nil] the master's last reading of itself
      def own = @watch&.own

      # @param pid [Integer]
      # @return [Array(Worker, Hash)] a worker's last report, and the leaves of its first; both nil before the first
      def reports(pid) = @reports.fetch(pid, []).values_at(0, 2)

      # @return [Workers] what the master knows of itself and of its workers
      def read
        since = Cost.now
        workers = (handles.keys | living(@reports).keys).filter_map { |pid| known(pid) }
        Workers.of([master, *workers.sort_by { |worker| [worker.index, worker.booted_at.to_f] }], since: since)
      end

      private

      def master = @controller ? @watch.latest.with(**@controller.fields) : @watch.latest

      # A failure is only a warning: reports do not need the listener's socket.
      def listen(otherwise)
        require_relative "../remote/server"
        Listener.listen(nil)
      rescue StandardError => e
        warn "memscope: #{otherwise}: #{e.message} (#{e.class})"
      end

      def receive(seconds)
        worker = @channel.receive(seconds)
        return unless worker&.role == :worker && worker.index

        # A report from a new pid: the worker may replace one that has ended, whose report is then dropped.
        new = !@reports.key?(worker.pid)
        @host&.reported(worker) if new
        kept = new ? living(@reports) : @reports
        first = kept.dig(worker.pid, 2) || worker.leaves
        @reports = { **kept, worker.pid => [worker, Clock.now, first] }.freeze
      end

      # The workers that have not ended.
      def living(workers) = workers.select { |pid, _known| alive?(pid) }

      def alive?(pid)
        Process.kill(0, pid) == 1
      rescue Errno::EPERM
        true
      rescue Errno::ESRCH
        false
      end

      # Returns nil if the worker has ended and another process has its pid: then no reports come from the pid, and
      # another worker has the index.
      def known(pid)
        worker, received = @reports[pid]
        index = @handles[pid]&.index
        phase = @handles[pid]&.phase
        return silent(pid, index, phase) unless worker

        seconds = Clock.now - received
        return worker.with(phase: phase) if seconds < patience
        # A worker that was replaced is left out.
        return if @reports.any? { |other, (one, _received)| other != pid && one.index == worker.index }

        worker.with(phase: phase, reasons: { **worker.reasons, at: "no report for #{seconds.round} s" })
      end

      def patience = [SILENT[:intervals] * Workers.setting(:worker_interval_seconds), SILENT[:seconds]].max

      def silent(pid, index, phase)
        Worker.capture({ index: index, pid: pid, role: :worker, phase: phase, samples: 0,
                         reasons: { at: "it has not reported yet" } })
      end
    end
  end
end
