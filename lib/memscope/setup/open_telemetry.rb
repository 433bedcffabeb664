# frozen_string_literal: true

require_relative "facade"

Memscope::Loading.gem("opentelemetry-metrics-sdk", "memscope/open_telemetry")

module Memscope
  # memscope's families as observable gauges of OpenTelemetry: memscope_ledger_bytes, for example, becomes
  # "memscope.ledger" with the unit By. Each process exports its own numbers. The resource identifies the process.
  #
  #   require "memscope/open_telemetry"
  #   OpenTelemetry::SDK.configure
  #   Memscope::OpenTelemetry.install
  #
  # Totals are gauges too, because the SDK's observable counter (0.12) adds up the totals of successive collections. An
  # instrument of that SDK has one set of attributes, and a second instrument with the same name in the same meter
  # replaces the first. So each sample with attributes has an instrument in a meter of its own, such as
  # "memscope/malloc/in_use", and all of these instruments have the metric's name.
  module OpenTelemetry
    # Units as OpenTelemetry writes them.
    UNITS = { "bytes" => "By", "seconds" => "s", "bytes_per_second" => "By/s", nil => "1" }.freeze

    @installed = {}
    @mutex = Mutex.new

    class << self
      # Creates an instrument for each current sample. A later call adds instruments for new samples, such as those of
      # arenas that new threads have created.
      #
      # @param meter_provider [::OpenTelemetry::SDK::Metrics::MeterProvider]
      # @return [Integer] number of instruments created
      # @raise [ArgumentError] before the SDK is configured
      def install(meter_provider: ::OpenTelemetry.meter_provider)
        unless meter_provider.is_a?(::OpenTelemetry::SDK::Metrics::MeterProvider)
          raise Invalid.new(:meter_provider, meter_provider.class, "one of the SDK, after OpenTelemetry::SDK.configure",
                            call: "Memscope::OpenTelemetry.install")
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
        name, labels = key
        # The SDK records no measurement for nil, the value of a sample that no longer exists.
        callback = -> { scrape.samples(name, key).find { |sample| sample.labels == labels }&.value }
        short = name.sub(/(_(bytes_per_second|bytes|seconds))?(_total)?\z/, "").sub("_", ".")
        gauge = meter.create_observable_gauge(short, unit: UNITS.fetch(family.unit), description: family.help,
                                                     callback: callback)
        gauge.tap { gauge.add_attributes(labels.transform_keys(&:to_s)) }
      end
    end
  end
end
