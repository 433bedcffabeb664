# frozen_string_literal: true

require_relative "facade"

Memscope::Loading.gem("prometheus-client", "memscope/prometheus_collector", feature: "prometheus/client")

module Memscope
  # memscope's families in a registry of the prometheus-client gem, for applications that already export a registry:
  #
  #   require "memscope/prometheus_collector"
  #   Memscope::PrometheusCollector.register
  #
  # The families are read whenever the registry is read. Nothing is stored, whichever data store is configured.
  module PrometheusCollector
    # A family with the registry's interface.
    # @api private
    class Metric < ::Prometheus::Client::Metric
      attr_reader :type

      def initialize(definition, scrape) # rubocop:disable Lint/MissingSuper -- it would create a store
        @name = definition.name.to_sym
        @type = definition.type
        @docstring = definition.help
        @labels = definition.label_names
        @preset_labels = {}
        @scrape = scrape
      end

      def values = @scrape.samples(name.to_s).to_h { |sample| [sample.labels, sample.value] }

      def get(labels: {}) = values[labels]
    end

    # Registers all families, including those without samples yet.
    #
    # @param registry [::Prometheus::Client::Registry]
    # @param worker [String, Integer, false, nil] as for Metrics.families
    # @return [void]
    # @raise [::Prometheus::Client::Registry::AlreadyRegisteredError] if one of the names is taken
    def self.register(registry = ::Prometheus::Client.registry, worker: nil)
      scrape = Metrics::Scrape.new(worker: worker)
      Metrics::DEFINITIONS.each { |definition| registry.register(Metric.new(definition, scrape)) }
      nil
    end
  end
end
