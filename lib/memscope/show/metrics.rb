# frozen_string_literal: true

Memscope::Loading.units :Arenas, :Census, :Configuration, :Tags, :Verdict, :Worker
require_relative "metrics/definitions"

module Memscope
  # Numbers for monitoring systems: families of samples in base units, with bounded labels and no pid. Prometheus,
  # OpenTelemetry and Yabeda export them. docs/metrics.md lists all families.
  #
  # The readings of a collection cost tier T1 at most, except ledgers, tags and glibc's arenas (T2) and a census (T3).
  # The configuration's `metrics_ledger_interval_seconds` limits how often readings above T1 are taken. Without this
  # setting, there are no ledgers and no arenas of glibc. Arenas also need `metrics_arenas`, and a census needs
  # `metrics_objects`.
  #
  # In a Puma cluster with the memscope plugin, any worker answers for all. A per-process family then has one sample per
  # worker, whose index is the label `worker`, and one for the master. These samples come from the last reports: nothing
  # is read again. The worker that answers reads only shared numbers, such as the cgroup's.
  module Metrics
    class << self
      # Reads the sources, and returns the families that have samples.
      #
      # @param worker [String, Integer, false, nil] a String or an Integer for this process only, with that label
      #   `worker`; false for this process only, without the label; nil for all of Puma's workers, or for this process
      #   if there are none
      # @raise [ArgumentError] for any other `worker`
      def families(worker: nil)
        own_label = check_worker(worker)
        workers = worker.nil? ? reported : {}
        readings = Readings.new(Configuration.current)
        DEFINITIONS.filter_map do |definition|
          samples = if workers.empty? then definition.samples(readings[definition.source], own_label)
                    else clustered(definition, readings, workers)
                    end
          family(definition, samples) unless samples.empty?
        end
      end

      # @api private
      def workers? = !Memscope.autoload?(:Workers) && !defined?(Memscope::Workers).nil?

      private

      def check_worker(worker)
        return worker.to_s if worker.is_a?(String) || worker.is_a?(Integer)

        Field.refuse(:worker, worker, "a String, an Integer, false, nil", call: "Memscope::Metrics.families") if worker
      end

      # The reports of Puma's workers to their master; none if no reporting was started, since Workers.read would then
      # read this process itself, in tier T2.
      def reports = workers? && Workers.current ? Workers.read : []

      # By label: the master, and for each index the worker that booted last, since two workers have the same index for
      # a while in a phased restart.
      def reported
        all = reports.group_by { |one| one.role == :master ? "master" : one.index&.to_s }.except(nil)
        all.transform_values { |same| same.max_by { |one| one.booted_at.to_f } }
      end

      # In a cluster only the sources that all workers share are read, so :taken (the readings so far) holds no others.
      def clustered(definition, readings, workers)
        return {} if readings.excluded?(definition.source)

        here = definition.shared? || definition.source == :taken ? readings[definition.source] : nil
        definition.samples(here, nil).merge(definition.reported_samples(workers))
      end

      def family(definition, samples)
        samples = samples.map { |labels, value| Sample.capture({ labels: labels.freeze, value: value }) }
        Family.capture({ name: definition.name, help: definition.help, type: definition.type, unit: definition.unit,
                         samples: samples })
      end
    end

    # The readings of one collection of families: each source is read at most once, and a source above tier T1 at most
    # once in an interval, whatever the number of collections.
    # @api private
    class Readings
      CACHES = %i[allocator ledger arenas census tags].to_h { |source| [source, TtlCache.new] }.freeze
      # Seconds between two censuses if no interval for ledgers is configured.
      INTERVAL = 60
      # How each source is read. The allocator is the same for the life of the process.
      SOURCES = {
        snapshot: ->(_interval) { Snapshot.read }, cgroup: ->(_interval) { Cgroup.read },
        verdict: ->(_interval) { Runtime.current.verdict },
        allocator: ->(_interval) { CACHES[:allocator].fetch(Float::INFINITY) { Allocator.read } },
        ledger: ->(interval) { CACHES[:ledger].fetch(interval) { Ledger.read_between_collections } },
        arenas: ->(interval) { Arenas.read_for_metrics(CACHES[:arenas], interval) },
        tags: ->(interval) { Tags.read_for_metrics(CACHES[:tags], interval) },
        census: ->(interval) { CACHES[:census].fetch(interval || INTERVAL) { Census.bounded } }
      }.freeze

      # The readings so far, by source.
      attr_reader :taken

      def initialize(configuration)
        @interval = configuration.metrics_ledger_interval_seconds
        # Tags are read only once there are any.
        @wanted = { ledger: @interval, arenas: configuration.metrics_arenas, census: configuration.metrics_objects,
                    tags: Native.tags_begun? }.freeze
        @taken = {}
      end

      def excluded?(source) = source == :ledger && !@wanted[:ledger]

      # nil if there is no such reading, or if the configuration excludes it.
      def [](source)
        return taken if source == :taken
        return (Workers.current&.own if Metrics.workers?) if source == :policy
        return unless source && @wanted.fetch(source, true)

        @taken.fetch(source) { (reading = SOURCES.fetch(source).call(@interval)) && (@taken[source] = reading) }
      end
    end

    # Samples for exporters that read metric by metric. One scrape gets one collection, so that the rows sum to the RSS.
    # The second read with the same key begins the next scrape.
    # @api private
    class Scrape
      def initialize(worker: nil)
        @worker = worker
        @mutex = Mutex.new
      end

      # `key` identifies a read: it is the same in each scrape.
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
