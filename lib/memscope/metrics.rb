# frozen_string_literal: true

require_relative "allocator"
require_relative "cgroup"
require_relative "configuration"
require_relative "ledger"
require_relative "metrics/definitions"
require_relative "snapshot"
require_relative "ttl_cache"

module Memscope
  # Numbers for monitoring systems: families of samples in base units, with bounded labels and no pid. Prometheus,
  # OpenTelemetry and Yabeda export them; docs/metrics.md lists all families.
  #
  # Each reading of a collection costs tier T1 at most. Ledgers, and glibc's arenas, are T2: the configuration's
  # `metrics_ledger_interval_seconds` limits how often they are read, if at all; arenas also need `metrics_arenas`.
  #
  # In a Puma cluster with the memscope plugin, any worker answers for all. A per-process family then has one sample per
  # worker, labelled `worker` with its index, and one for the master. They come from the last reports: nothing is read
  # again. The worker that answers reads only shared numbers, such as the cgroup's.
  module Metrics
    class << self
      # Reads the sources, and returns the families that have samples.
      #
      # @param worker [String, Integer, false, nil] the label `worker` of this process, which then answers for itself
      #   only; false for itself only and no label; nil for all of Puma's workers, or itself where there are none
      # @return [Array<Family>]
      # @raise [ArgumentError] for another worker
      def families(worker: nil)
        own_label = check_worker(worker)
        workers = worker.nil? ? Cluster.workers : {}
        readings = Readings.new(Configuration.current)
        DEFINITIONS.filter_map do |definition|
          samples = workers.empty? ? own(definition, readings, own_label) : clustered(definition, readings, workers)
          family(definition, samples) unless samples.empty?
        end
      end

      private

      def check_worker(worker)
        case worker
        when String, Integer then worker.to_s
        when false, nil then nil
        else raise ArgumentError, "Memscope::Metrics.families: worker: given #{worker.inspect}, " \
                                  "allowed: a String, an Integer, false, nil"
        end
      end

      def own(definition, readings, label)
        definition.source ? definition.samples(readings[definition.source], label) : {}
      end

      # Here :taken has the readings that all workers have in common.
      def clustered(definition, readings, workers)
        return {} if readings.excluded?(definition.source)

        here = definition.shared? || definition.source == :taken ? own(definition, readings, nil) : {}
        definition.reported? ? here.merge(definition.reported_samples(workers)) : here
      end

      def family(definition, samples)
        samples = samples.map { |labels, value| Sample.capture({ labels: labels.freeze, value: value }) }
        Family.capture({ name: definition.name, help: definition.help, type: definition.type, unit: definition.unit,
                         samples: samples })
      end
    end

    # The readings of one collection of families: each source at most once, and above tier T1 at most once in the
    # configured interval.
    #
    # @api private
    class Readings
      CACHES = %i[allocator ledger arenas].to_h { |source| [source, TtlCache.new] }.freeze
      private_constant :CACHES

      # @return [Hash{Symbol => Reading}] what has been read so far
      attr_reader :taken

      # @param configuration [#metrics_ledger_interval_seconds, #metrics_arenas]
      def initialize(configuration)
        @interval = configuration.metrics_ledger_interval_seconds
        @arenas = configuration.metrics_arenas
        @taken = {}
      end

      # @param source [Symbol] of Definition#source
      # @return [Boolean] whether the configuration excludes it
      def excluded?(source) = source == :ledger && !@interval

      # @param source [Symbol] of Definition#source
      # @return [Reading, Hash, nil] nil where it is not to be read
      def [](source)
        return taken if source == :taken

        @taken.fetch(source) { (reading = read(source)) && (@taken[source] = reading) }
      end

      private

      # The allocator is the same for the life of the process.
      def read(source)
        case source
        when :snapshot then Snapshot.read
        when :cgroup then Cgroup.read
        when :allocator then CACHES[:allocator].fetch(Float::INFINITY) { Allocator.read }
        when :ledger then CACHES[:ledger].fetch(@interval) { Ledger.read } if @interval
        when :arenas then Arenas.read_for_metrics(CACHES[:arenas], @interval) if @arenas
        end
      end
    end

    # The reports of Puma's workers, from which a collection answers for all of them.
    #
    # @api private
    module Cluster
      class << self
        # @return [Enumerable<Worker>] of the master; none where nothing was started to report, as Workers would read
        #   this process itself, in tier T2
        def reports
          return [] if Memscope.autoload?(:Workers) || !defined?(Memscope::Workers) || !Workers.current

          Workers.read
        end

        # @return [Hash{String => Worker}] by label: the newest report of each index, as a phased restart has two
        #   workers of one index for a while
        def workers
          all = reports.group_by { |one| one.role == :master ? "master" : one.index&.to_s }.except(nil)
          all.transform_values { |same| same.max_by { |one| one.booted_at.to_f } }
        end
      end
    end

    # Samples for exporters that ask metric by metric. One scrape is answered from one collection, so that rows sum;
    # asking again with the same key begins the next scrape.
    #
    # @api private
    class Scrape
      # @param worker [String, Integer, false, nil] as for Metrics.families
      def initialize(worker: nil)
        @worker = worker
        @mutex = Mutex.new
      end

      # @param name [String] of a family
      # @param key [Object] identifies the question: the same in each scrape
      # @return [Array<Sample>] empty where the family has none
      def samples(name, key = name)
        families = @mutex.synchronize do
          start unless @pid == Process.pid && !@asked.include?(key)
          @asked[key] = true
          @families
        end
        families[name]&.samples || []
      end

      private

      def start
        @families = Metrics.families(worker: @worker).to_h { |family| [family.name, family] }.freeze
        @asked = {}
        @pid = Process.pid
      end
    end
  end
end
