# frozen_string_literal: true

require_relative "facade"

Memscope::Loading.gem("yabeda", "memscope/yabeda")

module Memscope
  # memscope's families for Yabeda's exporters, in the group :memscope, under the names in docs/metrics.md:
  #
  #   gem "memscope", require: ["memscope", "memscope/yabeda"]
  #
  # They are read when Yabeda collects. Every sample has all tags of its metric. A tag without a value is "". Yabeda
  # keeps the last value of a gauge whose sample has disappeared.
  module Yabeda
    @counted = {}
    @mutex = Mutex.new

    class << self
      # Declares the metrics and registers `collect` with Yabeda. Loading this file does so.
      def install
        ::Yabeda.configure do
          group :memscope
          Metrics::DEFINITIONS.each do |definition|
            options = { comment: definition.help, tags: definition.label_names }
            options[:aggregation] = :most_recent if definition.type == :gauge
            public_send(definition.type, Memscope::Yabeda.short_name(definition), **options)
          end
          collect { Memscope::Yabeda.collect }
        end
      end

      # Reads all families, and passes their samples to Yabeda.
      def collect
        families = Metrics.families.to_h { |family| [family.name, family] }
        @mutex.synchronize do
          Metrics::DEFINITIONS.each do |definition|
            metric = ::Yabeda.memscope.public_send(short_name(definition))
            families[definition.name]&.samples&.each { |sample| update(metric, definition, sample) }
          end
        end
      end

      # @api private
      def short_name(definition) = definition.name.delete_prefix("memscope_").to_sym

      private

      def update(metric, definition, sample)
        tags = definition.label_names.to_h { |name| [name, sample.labels.fetch(name, "")] }
        return metric.set(tags, sample.value) if definition.type == :gauge

        increase = sample.value - @counted.fetch([definition.name, tags], 0)
        @counted[[definition.name, tags]] = sample.value
        metric.increment(tags, by: increase) if increase.positive?
      end
    end

    install
  end
end
