# frozen_string_literal: true

require "rake"

module Memscope
  # Rake tasks: `require "memscope/tasks"` in a Rakefile. In Rails the railtie does it.
  #
  # Each works on the rake process itself, and says so; FORMAT=json for JSON.
  #
  # * memscope:report prints the ledger.
  # * memscope:purge gives memory back and prints how much; LEVERS=gc,trim pulls only these, DRY_RUN=1 predicts only.
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

          desc "Give memory of this rake process back (LEVERS=gc,trim DRY_RUN=1 FORMAT=json)"
          task(:purge) { purge(ENV.fetch("FORMAT", "text")) }
        end
      end

      private

      def report(format)
        check(format)
        require "memscope"
        warn "memscope:report: of this rake process itself (pid #{Process.pid})"
        format == "json" ? puts(Memscope.ledger.to_json) : Memscope.report
      end

      def purge(format)
        check(format)
        require "memscope"
        levers = ENV.fetch("LEVERS", "").split(",").map(&:to_sym)
        result = Memscope.purge(*levers, dry_run: ENV.fetch("DRY_RUN", "0") != "0")
        warn "memscope:purge: of this rake process itself (pid #{Process.pid})"
        puts(format == "json" ? result.to_json : result.to_s)
      end

      def check(format)
        return if FORMATS.include?(format)

        raise ArgumentError, "FORMAT: given #{format.inspect}, allowed: #{FORMATS.join(', ')}"
      end
    end

    define
  end
end
