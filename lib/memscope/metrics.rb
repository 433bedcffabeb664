# frozen_string_literal: true

require_relative "configuration"
require_relative "metrics/definitions"
require_relative "metrics/collection"

module Memscope
  # What monitoring systems read: families of samples in base units, with bounded labels and no pid. Prometheus,
  # OpenTelemetry and Yabeda export them; docs/metrics.md lists all families.
  #
  # A collection reads what costs tier T1 at most. Ledgers, and glibc's arenas, are T2: the configuration's
  # `metrics_ledger_interval_seconds` limits how often they are read, if at all; arenas also need `metrics_arenas`.
  #
  # Where Puma runs workers under the memscope plugin, each of them answers for all. A family of the process then has a
  # sample for each worker, with its index as label `worker`, and for their master, as each last reported it; none of
  # that is read anew. What is the same for all, as the cgroup, is read by the worker that answers.
  module Metrics
    class << self
      # Reads, and takes the samples. Families without samples are left out.
      #
      # @param worker [String, Integer, false, nil] the label `worker` of this process, which then answers for itself
      #   only; false for itself only and no label; nil for all of Puma's workers, or itself where there are none
      # @return [Array<Family>]
      # @raise [ArgumentError] for another worker
      def families(worker: nil)
        own_label = check_worker(worker)
        workers = worker.nil? ? Cluster.workers : {}
        readings = Readings.new(configuration)
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

      # What was taken here is of what all workers have in common.
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

      def configuration = Configuration.current
    end
  end
end
