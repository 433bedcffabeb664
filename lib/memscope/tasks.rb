# frozen_string_literal: true

require "rake"

module Memscope
  # Rake tasks: `require "memscope/tasks"` in a Rakefile. In Rails the railtie does it.
  #
  # Each works on the rake process itself, and says so; FORMAT=json for JSON.
  #
  # * memscope:report prints the ledger.
  # * memscope:doctor says what is wrong; rake fails where something is.
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

          desc "Say what is wrong with the memory of this rake process, and fail if something is (FORMAT=json)"
          task(:doctor) { doctor(ENV.fetch("FORMAT", "text")) }

          desc "Give memory of this rake process back (LEVERS=gc,trim DRY_RUN=1 FORMAT=json)"
          task(:purge) { purge(ENV.fetch("FORMAT", "text")) }
        end
      end

      private

      def report(format)
        start(:report, format)
        format == "json" ? puts(Memscope.ledger.to_json) : Memscope.report
      end

      def doctor(format)
        start(:doctor, format)
        diagnosis = Memscope.doctor
        puts(format == "json" ? diagnosis.to_json : diagnosis.to_s)
        return if diagnosis.healthy?

        abort "memscope:doctor: #{diagnosis.healthy?.nil? ? 'could not be judged' : diagnosis.first.title}"
      end

      def purge(format)
        start(:purge, format)
        levers = ENV.fetch("LEVERS", "").split(",").map(&:to_sym)
        result = Memscope.purge(*levers, dry_run: ENV.fetch("DRY_RUN", "0") != "0")
        puts(format == "json" ? result.to_json : result.to_s)
      end

      def start(task, format)
        unless FORMATS.include?(format)
          raise ArgumentError,
                "FORMAT: given #{format.inspect}, allowed: #{FORMATS.join(', ')}"
        end

        require "memscope"
        warn "memscope:#{task}: of this rake process itself (pid #{Process.pid})"
      end
    end

    define
  end
end
