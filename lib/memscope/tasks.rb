# frozen_string_literal: true

require "rake"

module Memscope
  # Rake tasks: `require "memscope/tasks"` in a Rakefile. In Rails the railtie does it.
  #
  # * memscope:report prints the ledger of the rake process, and says that it is that one; FORMAT=json for JSON.
  module Tasks
    extend Rake::DSL

    # What FORMAT can be.
    FORMATS = %w[text json].freeze

    class << self
      # Defines the tasks. memscope itself is loaded when one runs.
      #
      # @return [void]
      def define
        namespace :memscope do
          desc "Print where the memory of this rake process is (FORMAT=json)"
          task(:report) { report(ENV.fetch("FORMAT", "text")) }
        end
      end

      private

      def report(format)
        unless FORMATS.include?(format)
          raise ArgumentError,
                "FORMAT: given #{format.inspect}, allowed: #{FORMATS.join(', ')}"
        end

        require "memscope"
        warn "memscope:report: of this rake process itself (pid #{Process.pid})"
        format == "json" ? puts(Memscope.ledger.to_json) : Memscope.report
      end
    end

    define
  end
end
