# frozen_string_literal: true

require_relative "requirement"
require_relative "metrics"

Memscope::Requirement.load("opentelemetry-metrics-sdk", feature: "opentelemetry-metrics-sdk",
                                                        surface: "memscope/open_telemetry")

module Memscope
  # memscope's families as observable gauges of OpenTelemetry: "memscope.ledger" with the unit By for
  # memscope_ledger_bytes. Each process speaks for itself, as its resource says which it is.
  #
  #   require "memscope/open_telemetry"
  #   OpenTelemetry::SDK.configure
  #   Memscope::OpenTelemetry.install
  #
  # Totals are gauges too: the SDK's observable counter adds up what it is told at each collection (0.12). An instrument
  # of that SDK has one set of attributes, and one of the same name in the same meter replaces it: so each sample with
  # attributes has a meter of its own, "memscope/malloc/in_use", and the metric's name is the same for all.
  module OpenTelemetry
    # Units as OpenTelemetry writes them.
    UNITS = { "bytes" => "By", "seconds" => "s", "bytes_per_second" => "By/s", nil => "1" }.freeze
    SUFFIX = /(_(bytes_per_second|bytes|seconds))?(_total)?\z/
    private_constant :SUFFIX

    @installed = {}
    @mutex = Mutex.new

    class << self
      # Makes an instrument for each sample that there is now. Calling it again adds those that there were not yet:
      # arenas come into being as threads do.
      #
      # @param meter_provider [::OpenTelemetry::SDK::Metrics::MeterProvider]
      # @return [Integer] how many instruments were made
      # @raise [ArgumentError] before the SDK is configured
      def install(meter_provider: ::OpenTelemetry.meter_provider)
        unless meter_provider.is_a?(::OpenTelemetry::SDK::Metrics::MeterProvider)
          raise ArgumentError, "Memscope::OpenTelemetry.install: meter_provider: given #{meter_provider.class}, " \
                               "allowed: one of the SDK, as OpenTelemetry::SDK.configure makes it"
        end

        @mutex.synchronize do
          installed = @installed[meter_provider] ||= { scrape: Metrics::Scrape.new(worker: false) }
          Metrics.families(worker: false).sum { |family| add(family, meter_provider, installed) }
        end
      end

      private

      def add(family, meter_provider, installed)
        family.samples.count do |sample|
          key = [family.name, sample.labels]
          next if installed.key?(key)

          meter = meter_provider.meter(["memscope", *sample.labels.values].join("/"), version: VERSION)
          installed[key] = instrument(meter, family, key, installed[:scrape])
        end
      end

      def instrument(meter, family, key, scrape)
        callback = -> { scrape.ask(key) { |families| value(families, *key) } }
        gauge = meter.create_observable_gauge(family.name.sub(SUFFIX, "").sub("_", "."), unit: UNITS.fetch(family.unit),
                                                                                         description: family.help,
                                                                                         callback: callback)
        gauge.add_attributes(key.last.transform_keys(&:to_s))
        gauge
      end

      # What is not known any more gives nil, which the SDK takes for no measurement.
      def value(families, name, labels)
        families[name]&.samples&.find { |sample| sample.labels == labels }&.value
      end
    end
  end
end
