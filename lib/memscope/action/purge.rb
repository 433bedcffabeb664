# frozen_string_literal: true

require_relative "purge/forecast"
require_relative "purge/result"

module Memscope
  # Returns memory to the kernel and measures how much, for Memscope.purge.
  #
  # A purge that names no levers runs those of the allocator. It runs :gc and :compact only if they are predicted to
  # stop Ruby for no more than MAX_PAUSE_MS each, and if no other process shares pages of Ruby's heap. The result
  # lists the levers that were left out, with the reasons.
  #
  # The levers, in the order in which they run, so that each leaves more for the later levers to return:
  #
  # - :gc, one full GC. Holds the GVL.
  # - :compact, the passes of Compaction, which free pages of Ruby's heap. Holds the GVL, several times longer than :gc.
  #   Refused on Ruby 3.1.0 to 3.1.3 and 3.2.0, where GC.compact can crash.
  # - :tcache (jemalloc): flushes the cache of the calling thread only.
  # - :decay (jemalloc): returns the unused pages whose decay time has passed. A page's decay time starts when jemalloc
  #   first looks at the page: when a thread allocates or frees in the page's arena, or runs this lever.
  # - :purge (jemalloc): returns all unused pages.
  # - :trim (glibc): malloc_trim(0), which returns whole pages inside free chunks.
  # - :collect: calls mi_collect(true) for the calling thread's heap (mimalloc), or returns the free spans (tcmalloc).
  #
  # The allocator's levers run without the GVL: other Ruby threads wait for the allocator's locks only.
  module Purge
    autoload :Compaction, File.join(__dir__, "purge", "compaction.rb")

    # Every lever, in order.
    LEVERS = %i[gc compact tcache decay purge trim collect].freeze

    # Another thread of this process is purging or tuning. Only one thread can do so at a time. The others fail without
    # waiting. A child that is forked during a purge can purge.
    class Busy < StandardError; end

    # @api private
    def self.run(levers, **options)
      Run.new(levers, **options).result.tap do |result|
        Notifications.tell(:purge) { result.to_h.except(:before, :after) } unless result.dry_run?
      end
    end

    # Predicts, like a dry run, the bytes that each lever would return by itself, from readings already taken.
    # @api private
    def self.forecast(evidence) = Run.new([], dry_run: true).result(evidence)

    # @api private
    # @return [Hash{Symbol => String, nil}] for each of these levers, why this process cannot run it; nil if it can
    def self.missing(levers = LEVERS)
      compact = Compaction.missing if levers.include?(:compact)
      { gc: nil, compact: compact, **Reasons.sentences(Native.levers) }.slice(*levers)
    end

    # @api private
    # @return [Symbol, nil] the lever that returns all unused memory of this process's allocator; nil if none does
    def self.allocators_lever = (%i[purge trim collect] - Native.levers.compact.keys).first

    # A lower bound on the bytes that `allocators_lever` returns, without the pages that other processes share if
    # these are known. nil if the ledger does not suffice (:trim needs a deep one). Tier T1.
    # @api private
    def self.least_bytes(ledger)
      lever = allocators_lever or return

      forecast = Forecast.of(lever, ledger, collect: false)
      (forecast.private_bytes || forecast.bytes)&.begin
    end

    # @api private
    # @raise [Busy]
    def self.with_exclusive_purge
      result = nil
      return result if Native.with_exclusive_purge { result = yield }

      raise Busy, "another thread of this process is purging or tuning; try again when it has finished"
    end

    # One purge. Refuses invalid arguments before it does anything. Then reads a ledger and, for each lever, makes a
    # forecast, runs the lever and reads a ledger again.
    # @api private
    class Run
      CALL = "Memscope.purge"

      # Takes the arguments of Memscope.purge, and raises its ArgumentError.
      def initialize(levers, dry_run: false, gc: false)
        Result.check_switch(:dry_run, dry_run)
        collections = dry_run ? "true, false" : "false; a purge has the lever :gc instead"
        refuse("gc", gc, collections) unless [dry_run, false].include?(gc)
        @named = levers.any?
        missing = Purge.missing(@named ? levers : LEVERS)
        @levers = available(missing)
        check_levers(levers - @levers, missing)
        @refused = missing.slice(*HOLDING_GVL).compact
        @left_out = {}
        @collect = gc
        @dry_run = dry_run
        @ledgers = []
      end

      # With `evidence`, a dry run predicts from its readings.
      def result(evidence = nil)
        start = Cost.now
        @done = if evidence then forecast(evidence)
                elsif @dry_run then predict
                else Purge.with_exclusive_purge { run_all }
                end
        Result.capture(body(Cost.now - start))
      end

      private

      def forecast(evidence)
        predictions(evidence.ledger, evidence.ruby_heap, evidence.gc_pause_ms) do |name|
          Forecast.of_collection(evidence.garbage&.collected, evidence.ledger) if name == :gc
        end
      end

      # With `gc`, Forecast gets no heap: it then reads the heap right after a collection, which allows a narrower
      # forecast than the heap read here, in which there may be garbage.
      def predict
        ledger, @blocks, heap = Ledger.survey(gc: @collect) if @levers.include?(:gc)
        ledger ||= Ledger.read(deep: @levers.include?(:trim), shared: true, gc: @collect)
        predictions(ledger, (heap unless @collect)) do |name|
          blocks = @blocks unless @left_out.key?(:gc) && name != :gc # a purge then collects no garbage before it
          Forecast.of_garbage(name, blocks)
        end
      end

      # @yieldreturn [Forecast, nil] of the garbage that the lever returns; nil to predict without it
      def predictions(ledger, heap, pause = Native.gc_pause_ms)
        @ledgers << ledger
        leave_out(ledger, pause)
        @levers.map { |name| lever(name, yield(name) || Forecast.of(name, ledger, collect: @collect, heap: heap)) }
      end

      # The first ledger is deep if the lever that runs first may need one.
      def run_all
        leave_out(read((@named ? @levers : @levers - HOLDING_GVL).first(1)))
        [*@levers, nil].each_cons(2).map { |name, following| run(name, following) }
      end

      # Predicts the harm of levers that hold the GVL. Unless levers were named, those that do harm are left out of a
      # purge, but not of a dry run.
      def leave_out(ledger, pause = Native.gc_pause_ms)
        @harms = @levers.intersect?(HOLDING_GVL) ? Harm.of(ledger, pause) : {}
        return if @named

        @left_out = @harms.slice(*@levers).transform_values(&:left_out).compact
        @levers -= @left_out.keys unless @dry_run
      end

      # The ledgers before and after trimming are deep: the first for the forecast, the second so that the rows before
      # and after can be compared.
      def read(levers) = Ledger.read(deep: levers.include?(:trim), shared: true).tap { |ledger| @ledgers << ledger }

      def run(name, following)
        before = @ledgers.last
        forecast = Forecast.of(name, before, collect: true)
        microseconds, failure = HOLDING_GVL.include?(name) ? run_ruby(name) : run_allocator(name)
        lever(name, forecast, **falls(before, read([name, following])),
              wall_ms: microseconds / 1000.0, reason: failure || forecast.reason)
      end

      def run_ruby(name)
        start = Cost.now
        name == :gc ? GC.start : Compaction.run
        [Cost.now - start, nil]
      rescue NotImplementedError => e # compaction became impossible after the levers were chosen
        [Cost.now - start, e.message]
      end

      def run_allocator(name)
        wall_ns, failure = Native.run_lever(name)
        [wall_ns / 1000, Reasons.sentence(failure)]
      end

      def lever(name, forecast, **done)
        harm = @harms[name]
        forecast = forecast.unsharing(harm.unshared_bytes) if name == :gc && harm.unshares?
        Lever.capture({ name: name, predicted_bytes: forecast.bytes&.begin,
                        predicted_max_bytes: forecast.bytes&.end,
                        predicted_private_bytes: forecast.private_bytes&.begin,
                        predicted_private_max_bytes: forecast.private_bytes&.end,
                        predicted_pause_ms: harm&.pause_ms, rows: {}, gvl: HOLDING_GVL.include?(name),
                        reason: forecast.reason, **done })
      end

      # The fields of a Lever and of a Result that compare two ledgers.
      def falls(before, after)
        all, own = %i[rss_bytes private_bytes].map do |size|
          sizes = [before, after].map(&size)
          sizes.reduce(:-) if sizes.all?
        end
        { returned_bytes: all, returned_private_bytes: own, rows: all ? row_falls(before, after) : {} }
      end

      # The rows' falls by path, as deep as both ledgers go, the largest change first. They sum to the fall of RSS.
      def row_falls(before, after)
        ledgers = [before, after].map { |ledger| ledger.each_path.to_h { |path, row| [path, row] } }
        falls = common_paths(ledgers).map { |path| [path, ledgers.map { |rows| rows[path]&.bytes || 0 }.reduce(:-)] }
        falls.reject { |_path, bytes| bytes.zero? }.sort_by { |_path, bytes| -bytes.abs }.to_h
      end

      # The paths of the rows that are at the top or directly below a row that both ledgers split, and that at most one
      # of the ledgers splits.
      def common_paths(ledgers)
        split = ledgers.map { |rows| rows.reject { |_path, row| row.leaf? }.keys }.reduce(:&)
        (ledgers.flat_map(&:keys).uniq - split).select do |path|
          above = path[%r{\A(.+)/}, 1]
          above.nil? || split.include?(above.to_sym)
        end
      end

      def body(took)
        before = @ledgers.first
        after = @ledgers.last unless @dry_run
        { allocator: before.allocator.name, dry_run: @dry_run, levers: @done, left_out: @left_out,
          finished_gc: @blocks&.finished_gc?, uncounted_bytes: (@blocks.uncounted_bytes if @blocks&.garbage),
          before: before, after: after, **(after ? falls(before, after) : { rows: {} }),
          reasons: { **@refused, **reasons(@ledgers) }, cost: cost(Cost.sum(@ledgers.map(&:cost)), took) }
      end

      def reasons(ledgers) = ledgers.map(&:reasons).reduce(:merge).slice(:extension, :rss_bytes, :shared)

      def cost(ledgers, took)
        held = @done.select(&:gvl?).sum { |lever| ((lever.wall_ms || 0) * 1000).to_i }
        { **ledgers, tier: :T3, wall_us: took, gvl_us: ledgers[:gvl_us] + held }
      end

      def available(missing) = LEVERS.select { |lever| missing.fetch(lever, "not named").nil? }

      def check_levers(wrong, missing)
        return if wrong.empty?

        lever = wrong.first
        served = ", and #{server} serves malloc" unless HOLDING_GVL.include?(lever)
        why = "; #{lever.inspect} is not available: #{missing[lever]}#{served}" if missing[lever]
        refuse("lever", lever, "#{available(Purge.missing).map(&:inspect).join(', ')}#{why}")
      end

      def server = Native.allocator[:name].then { |name| name == :unknown ? "something unknown" : name }

      def refuse(argument, given, allowed) = Field.refuse(argument, given, allowed, call: CALL)
    end
  end
end
