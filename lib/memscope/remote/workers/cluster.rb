# frozen_string_literal: true

require_relative "channel"
require_relative "endings"
require_relative "puma_host"

module Memscope
  class Workers < Reading
    # Puma's cluster. The plugin creates it in the master before the first fork, so that each worker has a copy. The
    # master keeps the last report of each worker.
    #
    # Only the thread that samples the master writes @reports, and only Puma's loop writes @handles. Each replaces one
    # frozen Hash with another, so that readers need no lock.
    # @api private
    class Cluster
      # A worker is marked as silent if it has not reported for this many intervals and at least this many seconds.
      SILENT = { intervals: 3, seconds: 60 }.freeze
      # The master serves nothing, so that it changes little, and seldom collects garbage: its readings are rare, and
      # their garbage is collected once there is this much malloc memory or this many objects.
      PACE = { share: 0.0002, least: 60 }.freeze
      GARBAGE = { malloc_increase_bytes: 3 << 20, objects: 40_000 }.freeze
      # How many GCs an object survives until it is old (RVALUE_OLD_AGE in Ruby's gc.c).
      OLD_AGE = 3
      # The number of large blocks to allocate, and their bytes. For each block, glibc sorts up to 10,000 free chunks
      # into bins (MAX_ITERS in malloc.c).
      FLUSH = { times: 100, bytes: 100_000 }.freeze
      # Seconds between two polls for reports. A poll costs 0.1 ms. The kernel queues some tens of reports.
      LOOKS = (0.5..2.0)
      # Maximum reports that are taken at a time.
      MAX_REPORTS = 100

      # Without a launcher, no policy is followed.
      def initialize(launcher = nil)
        @pid = Process.pid
        @channel = Channel.new
        @reports = {}.freeze
        @handles = {}.freeze
        @endings = Endings.new
        return unless launcher

        @host = PumaHost.new(self, launcher)
        @controller = Controller.new(@host, PumaHost.log_of(launcher))
      end

      # Runs in a worker, right after the fork. The worker listens even if the setting `listen` is false: a purge of the
      # workers needs the socket of each.
      def boot_worker(index)
        @channel.keep_writer
        @endings = Endings.new # the master's descriptors are closed here
        listen("worker #{index} cannot be asked")
        reporter = Reporter.new(role: :worker, index: index)
        watch = Watch.new(reporter, master_pid: @pid) { |worker| @channel.send(worker) }
        start_history if Configuration.effective(:history) # before the first reading, which the history uses
        BlackBox.start(role: "puma worker", index: index) { Workers.serves? }
        watch.start
        Runtime.current.workers = watch
      end

      # Runs in the master before it forks. A GC writes to objects that it frees, and to those that survive a third GC,
      # which become old. If the master's first GCs ran later, it would need its own copies of pages that it shares with
      # its workers. So would each process of pages with memory that these GCs freed, once it is used or filed by size:
      # glibc does that at the first malloc of a large block, and writes to each free chunk.
      def prepare_fork
        OLD_AGE.times { collect }
        return if Native.levers[:trim]

        Native.run_lever(:trim)
        FLUSH[:times].times { String.new(capacity: FLUSH[:bytes]).clear }
      end

      # Runs in a process that has forked a worker: the master or, with fork_worker, worker 0.
      def forked
        watch = Workers.current
        watch.reporter.rebase if watch.is_a?(Watch)
        resume if watch.equal?(self) # notes how the worker ended whose successor this is, before that tells of it
      end

      # Runs in the master, at each ping from a worker.
      def saw(handle)
        @handles = handles.merge(handle.pid => handle).freeze unless @handles[handle.pid].equal?(handle)
      end

      # Puma's workers by pid, once they have booted, and until they have ended.
      def handles = living(@handles)

      # Runs in the master: answers workers over the master's listener, receives their reports, and takes readings of
      # the master.
      def serve
        listen("workers cannot ask their master")
        run
      end

      # Receives reports, and takes readings of this process itself, in the thread of Runtime::Sampling.
      def run
        History::Sampler.start(History::Sampler::MIN_WALK_SECONDS) if Configuration.effective(:history)
        BlackBox.start(role: "puma master") { handles.any? }
        @watch = Watch.new(Reporter.new(role: :master), controller: @controller, **PACE)
        @due = @seldom = Clock.now
        @collected ||= GC.stat(:total_allocated_objects)
        Runtime.current.workers = self
        resume
      end

      # Takes the reports that have come, does the work that is due, and returns the seconds until the next call.
      # Raises nothing: no report may end the thread.
      def call
        MAX_REPORTS.times { receive or break }
        @endings.note
        return pause if Clock.now < @due

        @due = Clock.now + Configuration.effective(:worker_interval_seconds)
        @seldom = Clock.now + @watch.step if Clock.now >= @seldom
        @controller&.run_soon
        @own = nil
        tidy
        pause
      rescue StandardError => e
        fail_once(e)
        pause
      end

      # Starts the thread again if it was killed.
      def resume = Runtime.current.sampling.schedule(self)

      # The master's last reading of itself.
      def own = @watch&.own

      def read(_type = Workers)
        since = Cost.now
        workers = known.filter_map { |one, phase| one.is_a?(Worker) ? one : one.worker&.with(phase: phase) }
        Workers.of([@watch.latest, *workers], since: since)
      end

      # The JSON of this object is that of `read`.
      def answer = self

      # `read` as JSON, for which no report is parsed. Only the listener calls this: the next call overwrites the text,
      # so that none is left for a garbage collection.
      def to_json(*)
        head, list, tail = Workers.of([], since: Cost.now).to_json.b.partition('"workers":[')
        text = (@text ||= +"").force_encoding(Encoding::BINARY)
        text[0..] = head << list << (@own ||= @watch.latest.to_json)
        known.each { |one, phase| one.is_a?(Worker) ? text << "," << one.to_json : one.write(text << ",", phase) }
        (text << tail).force_encoding(Encoding::UTF_8)
      end

      private

      # Immediately, unlike in other children of a process that samples itself: the first report has a verdict.
      def start_history
        History.start
        runtime = Runtime.current
        runtime.sampling.schedule(runtime.history) if runtime.history && runtime.forked_from_sampled
      end

      # The time in which four reports come.
      def pause = (4.0 * Configuration.effective(:worker_interval_seconds) / [@reports.size, 16].max).clamp(LOOKS)

      def fail_once(error)
        return if @failed

        @failed = true
        text = "a report was dropped: #{error.message} (#{error.class})"
        @controller ? @controller.log(text) : warn("memscope: #{text}")
      end

      def tidy
        garbage = { malloc_increase_bytes: GC.stat(:malloc_increase_bytes),
                    objects: GC.stat(:total_allocated_objects) - @collected }
        collect if garbage.any? { |name, count| count > GARBAGE[name] }
      end

      # Without a full GC, which would take a tenth of a second per million objects.
      def collect
        GC.start(full_mark: false)
        @collected = GC.stat(:total_allocated_objects)
      end

      # A failure is only a warning: reports do not need the listener's socket.
      def listen(otherwise)
        Loading.unit(:Listener).listen(nil)
      rescue StandardError => e
        warn "memscope: #{otherwise}: #{e.message} (#{e.class})"
      end

      # Takes one report; nil if there is none.
      def receive
        text = @channel.receive or return
        pid = Received.sender(text) or return true
        return @reports[pid].take(text) || true if @reports.key?(pid)

        # The worker may replace one that has ended, whose report is then dropped.
        received = Received.new(text)
        @host&.reported(received)
        @reports = { **living(@reports), pid => received }.freeze
        @endings.hold(pid)
      rescue StandardError => e
        fail_once(e)
      end

      # The workers that have not ended.
      def living(workers) = workers.select { |pid, _known| SystemCall.attempt { Process.getpgid(pid) } }

      # Each worker in order: its reports, with its phase; if the last one is missing or old, a Worker with a reason.
      def known
        pids = handles.keys | living(@reports).keys
        pids.sort_by { |pid| [@reports[pid]&.index || @handles[pid].index, @reports[pid]&.began.to_f] }
            .filter_map { |pid| place(pid, @reports[pid], @handles[pid]) }
      end

      # Returns nil if the worker has ended and another process has its pid: then no reports come from the pid, and
      # another worker has the index.
      def place(pid, received, handle)
        index = handle ? handle.index : received.index
        why = received ? received.fault : Reasons.sentence(:worker_unreported)
        return [silent(pid, index, handle&.phase, why)] if why

        seconds = Clock.now - received.at
        return [received, handle&.phase] if seconds < patience
        # A worker that was replaced is left out.
        return if @reports.any? { |other, one| other != pid && one.index == received.index }

        worker = received.worker or return [silent(pid, index, handle&.phase, received.fault)]
        why = Reasons.sentence([:worker_late, seconds.round.to_s])
        [worker.with(phase: handle&.phase, reasons: { **worker.reasons, at: why })]
      end

      def patience = [SILENT[:intervals] * Configuration.effective(:worker_interval_seconds), SILENT[:seconds]].max

      def silent(pid, index, phase, why)
        Worker.capture({ index: index, pid: pid, role: :worker, phase: phase, samples: 0, reasons: { at: why } })
      end
    end
  end
end
