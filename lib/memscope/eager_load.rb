# frozen_string_literal: true

require_relative "facade"

module Memscope
  # All files that are otherwise loaded when they are first used.
  #
  # @api private
  module EagerLoad
    # Commands, pages, hooks and exporters, which a program loads whole or not at all.
    APART = /\A(?:cli|launch|native|web|rack_tags|sidekiq_tags|eager_load|tasks|railtie|
                open_telemetry|prometheus_collector|yabeda)\b/x
    PPROF = "profile/formats/pprof.rb"
    private_constant :APART, :PPROF

    class << self
      # @return [Array<String>] paths, those of the root first: the others are parts of them
      def files
        names = Dir.glob("**/*.rb", base: __dir__).grep_v(APART)
        names.delete(PPROF) unless defined?(::Google::Protobuf) # it needs that gem
        names.sort_by { |name| [name.count("/"), name] }.map { |name| File.join(__dir__, name) }
      end
    end
  end
end
