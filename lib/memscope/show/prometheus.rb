# frozen_string_literal: true

Memscope::Loading.unit :Metrics

module Memscope
  # The metrics of this process, or of all of Puma's workers, in Prometheus's text format 0.0.4:
  #
  #   [200, { "content-type" => Memscope::Prometheus::CONTENT_TYPE }, [Memscope::Prometheus.text]]
  #
  # docs/metrics.md lists the families. Metrics explains their costs.
  module Prometheus
    # The content type of the text format.
    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    HELP_ESCAPES = { "\\" => "\\\\", "\n" => "\\n" }.freeze
    LABEL_ESCAPES = { **HELP_ESCAPES, '"' => '\"' }.freeze
    private_constant :HELP_ESCAPES, :LABEL_ESCAPES

    class << self
      # Reads all families, and formats them.
      #
      # @param worker [String, Integer, false, nil] as for Metrics.families
      # @return [String] UTF-8, with a newline at the end
      # @raise [ArgumentError] for any other `worker`
      def text(worker: nil) = format(Metrics.families(worker: worker))

      # @param families [Array<Metrics::Family>]
      # @return [String] in the text format, one family after the other
      def format(families)
        families.each_with_object(+"") do |family, text|
          text << "# HELP #{family.name} #{family.help.gsub(/[\\\n]/, HELP_ESCAPES)}\n"
          text << "# TYPE #{family.name} #{family.type}\n"
          family.samples.each { |sample| text << family.name << labels(sample.labels) << " #{sample.value}\n" }
        end
      end

      private

      def labels(labels)
        return "" if labels.empty?

        pairs = labels.map { |name, value| %(#{name}="#{Field.text(value).gsub(/[\\\n"]/, LABEL_ESCAPES)}") }
        "{#{pairs.join(',')}}"
      end
    end
  end
end
