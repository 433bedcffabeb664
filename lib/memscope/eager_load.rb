# frozen_string_literal: true

require_relative "facade"

module Memscope
  # Loads all files that are otherwise loaded when they are first used.
  #
  # @api private
  module EagerLoad
    # Files that are not loaded here: commands and what only commands show, pages, hooks, exporters, test helpers. Each
    # of these parts is loaded whole or not at all.
    APART = %r{\A(?:cli|launch|native|web|rack_tags|sidekiq_tags|eager_load|tasks|railtie|
                open_telemetry|prometheus_collector|yabeda|check|assertions|rspec|
                requires|report/(?:requires|check))\b}x
    private_constant :APART

    class << self
      # @return [void]
      def run
        Loading.resolve(Memscope)
        Loading.resolve(Profile::Formats)
        files.each { |file| require file }
      end

      private

      # Files at the root come first: the other files reopen classes and modules that the root files define.
      def files
        names = Dir.glob("**/*.rb", base: __dir__).grep_v(APART)
        names.sort_by { |name| [name.count("/"), name] }.map { |name| File.join(__dir__, name) }
      end
    end
  end
end
