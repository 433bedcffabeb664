# frozen_string_literal: true

require_relative "metrics/family"
require_relative "metrics/readings"
require_relative "metrics/cluster"
require_relative "metrics/of_process"
require_relative "metrics/of_gc"
require_relative "metrics/of_jemalloc"
require_relative "metrics/of_cgroup"
require_relative "metrics/of_ledger"
require_relative "metrics/of_arenas"
require_relative "metrics/of_workers"
require_relative "metrics/of_readings"

module Memscope
  # What monitoring systems get: families of samples in base units, with bounded labels and no pid. Prometheus,
  # OpenTelemetry and Yabeda are served from here; docs/metrics.md lists all families.
  #
  # A collection reads what costs tier T1 at most. Ledgers, and glibc's arenas, are T2: they are read only where the
  # configuration's `metrics_ledger_interval_seconds` says how often at most; arenas also only with `metrics_arenas`.
  #
  # Where Puma runs workers under the memscope plugin, each of them answers for all. What is of a process has a sample
  # for each worker, with its index as label `worker`, and for their master, as each last reported it; nothing of that
  # is read anew. What is the same for all, as the cgroup, is read by the worker that answers.
  module Metrics
    # All families, in the order of their export.
    #
    # @return [Array<Definition>]
    DEFINITIONS = [*OF_PROCESS, *OF_GC, *OF_JEMALLOC, *OF_CGROUP, *OF_LEDGER, *OF_ARENAS, *OF_WORKERS,
                   *OF_READINGS].freeze

    class << self
      # Reads, and takes the samples. Families without any are left out.
      #
      # @param worker [String, Integer, false, nil] the label `worker` of this process, which then speaks for itself
      #   only; false for itself only and no label; nil for all of Puma's workers, or itself where there are none
      # @return [Array<Family>]
      # @raise [ArgumentError] for another worker
      def families(worker: nil)
        cluster = Cluster.of(worker)
        readings = Readings.new(configuration)
        DEFINITIONS.filter_map do |definition|
          samples = samples(definition, cluster, readings)
          family(definition, samples) unless samples.empty?
        end
      end

      private

      def samples(definition, cluster, readings)
        return {} if definition.source == :ledger && !readings.interval
        return clustered(definition, cluster, readings) if cluster.workers

        definition.source ? definition.samples(readings[definition.source], cluster.own_label) : {}
      end

      # What was taken here is of what all workers have in common.
      def clustered(definition, cluster, readings)
        common = definition.shared? || definition.source == :taken
        here = common ? definition.samples(readings[definition.source], nil) : {}
        definition.reported? ? here.merge(definition.reported_samples(cluster.workers)) : here
      end

      def family(definition, samples)
        samples = samples.map { |labels, value| Sample.capture({ labels: labels.freeze, value: value }) }
        Family.capture({ name: definition.name, help: definition.help, type: definition.type, unit: definition.unit,
                         samples: samples })
      end

      def configuration = Memscope.configuration
    end
  end
end
