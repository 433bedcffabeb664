# frozen_string_literal: true

module Memscope
  class History < Reading
    # Samples this process, in the thread of Runtime::Sampling. Raises nothing: a sample that fails is left out, and the
    # first failure is reported on standard error.
    # @api private
    class Sampler
      # Seconds between two samples of the numbers that are read in microseconds.
      SECONDS = STEPS.first
      # Minimum seconds between two readings of a kind that takes longer.
      MIN_READING_SECONDS = 60
      # The minimum of seconds between two walks of all objects, which may fork.
      MIN_WALK_SECONDS = 600
      # The maximum share of a core that each of the four kinds may use.
      MAX_CORE_SHARE = 0.0002
      # Seconds between two verdicts.
      EPOCH = 300
      # Threads of 5.6 to 8.0: "puma srv tp 001".
      PUMA_THREAD = /\Apuma srv tp /
      # The series of each kind of reading, by the name of the method that takes it.
      KINDS = { rows: ROWS, sizes: %i[pss uss], walk: %i[malloc_in_use], held: %i[held] }.freeze
      # A kind of reading, its series, the minimum seconds between two readings, the seconds between them now, when the
      # next one is due, and when the last one was taken or, before the first, when the process began.
      Task = Struct.new(:kind, :series, :least, :spacing, :due, :taken)

      class << self
        # (see History.start)
        #
        # @param least [Integer] the minimum seconds between two walks of malloc's heaps, but not in forked children
        def start(least = MIN_READING_SECONDS)
          opened = Native.open_history
          Loading.unit(:Verdict) # before the thread that asks for one
          return (@refusal = Reasons.sentence(opened)) && false unless opened == true

          @hooked ||= Forks.listen(child: -> { forked }, daemon: -> { forked }, parent: -> { mark(:forked) }) && true
          running? || launch(new(least), 0)
        end

        def stop
          runtime = Runtime.current
          runtime.sampling.cancel(runtime.history)
          runtime.history = nil
        end

        def running? = !current.nil? && Runtime.current.sampling.run?(current)

        # @return [Hash{Symbol => Integer}] seconds between the samples of the series that are sampled rarely
        def spacings = current&.spacings || {}

        # @return [Hash{Symbol => String}] why series have no samples
        def reasons
          current ? current.reasons : { running: Native.absence || @refusal || Reasons.sentence(:history_not_started) }
        end

        # @return [Float] as Clock.boot
        def now = Clock.boot

        private

        def current = Runtime.current.history

        # A forked child lacks the thread, so this starts one. A child that ends within seconds does nothing more.
        def forked = (launch(new, SECONDS) if Runtime.current.forked_from_sampled)

        def launch(sampler, delay)
          Runtime.current.sampling.schedule(sampler, delay)
          Runtime.current.history = sampler
          true
        rescue ThreadError => e
          warn "memscope: history: process #{Process.pid} is not sampled: #{e.message}"
          false
        end

        def mark(kind) = current && Native.mark_history(EVENTS.index(kind), now.to_i)
      end

      # Why series have no samples. The bytes that a trim would return, as of the last walk of glibc's heaps; nil if
      # unknown. Pages that are known to be shared with other processes are left out.
      attr_reader :reasons, :trimmable_bytes

      # The first costly samples are due only after their spacing: a process that ends sooner does not pay for them. The
      # first rows are due with the second sample, so that a process that has just begun soon knows its growing rows.
      def initialize(least = MIN_READING_SECONDS)
        @reasons = {}.freeze
        now = self.class.now
        first = { rows: MIN_READING_SECONDS, sizes: MIN_READING_SECONDS, walk: least, held: least }
        first.delete(:walk) unless Allocator.body[:name] == :glibc
        @tasks = first.map do |kind, spacing|
          due = now + (kind == :rows ? SECONDS - 1 : spacing) # a second for the scheduler
          Task.new(kind, KINDS.fetch(kind), kind == :held ? MIN_WALK_SECONDS : spacing, spacing, due, now)
        end
      end

      def spacing(series) = @tasks.find { |task| task.series.include?(series) }&.spacing || SECONDS

      def spacings = @tasks.flat_map { |task| task.series.map { |series| [series, task.spacing] } }.to_h

      # Takes a sample, at the same point of each bucket, but at a different one in each process, so that the processes
      # of a server do not work at the same moment.
      def call
        @began ||= Native.mark_history(EVENTS.index(:started), self.class.now.to_i) || true
        step
        place = 0.5 + (Process.pid % SECONDS * 0.9)
        ((place - self.class.now) % SECONDS).then { |rest| rest < 1 ? rest + SECONDS : rest }
      end

      # Takes one sample of each series that is due.
      #
      # @param at [Numeric, nil] Sampler.now by default
      def step(at = nil)
        due = at || self.class.now
        values = totals
        @tasks.each { |task| values.update(run(task, due)) if task.due <= due }
        add(values, at)
        judge(due.to_i / EPOCH)
      rescue StandardError => e
        failed(e)
      end

      # Adds readings that were taken for another purpose, so that the history need not take its own.
      def offer(ledger, memory)
        add({ **rows(ledger), **sizes(memory) })
        now = self.class.now
        @tasks.first(2).each do |task|
          since = now - task.taken - 1 # a second for the scheduler
          task.spacing = (since / SECONDS).ceil.clamp(1, MIN_READING_SECONDS / SECONDS) * SECONDS
          task.due = now + (2 * MIN_READING_SECONDS)
          task.taken = now
        end
      end

      private

      def add(values, now = nil) = Native.add_to_history(values, (now || self.class.now).to_i)

      def run(task, now)
        since = Clock.cpu
        values = attempt(task.kind)
        cpu = Clock.cpu - since
        task.spacing = ([cpu / MAX_CORE_SHARE, task.least].max / SECONDS).ceil * SECONDS
        task.due = now + task.spacing - 1 # a second for the scheduler
        task.taken = now
        values
      end

      # Returns no values if the reading fails: the sample then has only the other series.
      def attempt(kind)
        send(kind)
      rescue StandardError => e
        failed(e)
        @trimmable_bytes = nil if kind == :walk
        {}
      end

      def failed(error)
        why = "a sample failed: #{error.message} (#{error.class})"
        warn "memscope: history: #{why}" unless @reasons.key?(:failed)
        explain(failed: why)
      end

      def totals = { **of_snapshot(Snapshot.read), threads: Thread.list.size, requests: requests }

      def of_snapshot(snapshot)
        gc = snapshot.gc
        in_use, active, resident = snapshot.jemalloc.to_h.values_at(:in_use_bytes, :active_bytes, :resident_bytes)
        explain(malloc_active: snapshot.reasons[:jemalloc], malloc_resident: snapshot.reasons[:jemalloc])
        { rss: snapshot.rss_bytes, live_slots: gc[:heap_live_slots], live_bytes: live_bytes(gc, snapshot.gc_heaps),
          old_objects: gc[:old_objects], minor_gcs: gc[:minor_gc_count], major_gcs: gc[:major_gc_count],
          malloc_in_use: in_use, malloc_active: active, malloc_resident: resident }
      end

      # Puma's threads know the server once they have worked. The threads of Puma's control server have another name.
      def requests
        explain(requests: Reasons.sentence(:requests_uncounted)) unless defined?(::Puma::Server)
        servers = Thread.list.select { |thread| thread.name&.match?(PUMA_THREAD) }.filter_map do |thread|
          thread.respond_to?(:puma_server) ? thread.puma_server : thread[:puma_server]
        end
        servers.first&.requests_count
      end

      # Exact if all slots are of one size (until Ruby 3.1), or counted by size (since 3.4). In Ruby 3.2 and 3.3,
      # computed as if slots of each size were equally full.
      def live_bytes(stat, heaps)
        return stat[:heap_live_slots] * GC::INTERNAL_CONSTANTS[:RVALUE_SIZE] unless heaps

        counter = heaps[0].key?(:heap_live_slots) ? :heap_live_slots : :heap_eden_slots
        counted = heaps.each_value.sum { |heap| heap[counter] }
        bytes = heaps.each_value.sum { |heap| heap[counter] * heap[:slot_size] }
        counted.zero? ? 0 : stat[:heap_live_slots] * bytes / counted
      end

      # With the RSS that the rows sum to: a process that has just begun can grow by a lot after its last RSS was read.
      def rows(ledger = Ledger.read_between_collections)
        explain(**ROWS.to_h { |row| [row, ledger.reasons[:rss_bytes]] }) unless ledger.known?
        bytes = ledger.rows.to_h { |row| [row.id, row.bytes] }
        Runtime.current.ledger = ledger if ledger.known?
        ledger.known? ? { rss: ledger.rss_bytes, **ROWS.to_h { |row| [row, bytes.fetch(row, 0)] } } : {}
      end

      def sizes(memory = ProcessMemory.read)
        explain(pss: memory.reasons[:pss_bytes], uss: memory.reasons[:uss_bytes])
        { pss: memory.pss_bytes, uss: memory.uss_bytes }
      end

      # glibc's own sum, mallinfo2, takes as long, and holds the arenas' locks.
      def walk(ledger = Ledger.read_between_collections(deep: true))
        malloc = ledger.row(:malloc)
        explain(malloc_in_use: ledger.reasons[:deep])
        @trimmable_bytes = malloc && malloc.detail.values_at(:trimmable_private_bytes, :trimmable_bytes).compact.first
        { **rows(ledger), malloc_in_use: malloc && malloc.detail[:in_use_bytes] }
      end

      # Unknown if objects were left out.
      def held
        heap = RubyHeap.bounded(objects: true)
        explain(held: heap.reasons[:held_by_objects_bytes])
        { held: (heap.held_by_objects_bytes unless heap.reasons[:held_by_objects_bytes]) }
      end

      # Judges once an epoch, and at the first sample, to know until when it is too early for a verdict.
      def judge(epoch)
        return Verdict.update(self.class) if @epoch && epoch <= @epoch

        @epoch = epoch
        Verdict.judge(self.class)
      end

      def explain(**reasons) = @reasons = { **@reasons, **reasons }.compact.freeze
    end
  end
end
