# frozen_string_literal: true

require "rake"

module Memscope
  # Rake tasks: `require "memscope/tasks"` in a Rakefile. In Rails the railtie does it.
  #
  # * memscope:report prints the ledger.
  # * memscope:doctor says what is wrong; rake fails where something is.
  # * memscope:arenas and memscope:size_classes print what malloc holds.
  # * memscope:purge gives memory back and prints how much; LEVERS=gc,trim pulls only these, DRY_RUN=1 predicts only.
  # * memscope:metrics prints the page for Prometheus.
  #
  # PID=4711 asks a process that listens, URL=https://name:password@host/memscope an application that has mounted
  # Memscope::Web. With neither it is the rake process itself, which each says: rake is not the server. FORMAT=json for
  # JSON. Of a PID that does not listen memscope:report shows what the kernel tells.
  module Tasks
    extend Rake::DSL

    # A task cannot do what was asked of it; the message says why.
    class Failure < StandardError; end

    # Each task, and what `rake -T` says of it.
    TASKS = {
      report: "Print where the memory is (PID= or URL= of what, else of this rake process; FORMAT=json)",
      doctor: "Say what is wrong with the memory, and fail if something is (PID=, URL=, FORMAT=json)",
      arenas: "Print the arenas of malloc (PID=, URL=, FORMAT=json)",
      size_classes: "Print how full jemalloc's slabs are, by size (PID=, URL=, FORMAT=json)",
      purge: "Give memory back (LEVERS=gc,trim, DRY_RUN=1, PID=, URL=, FORMAT=json)",
      metrics: "Print the metrics as Prometheus reads them (URL=)"
    }.freeze
    # What FORMAT can be; the metrics are text.
    FORMATS = %w[text json].freeze
    # What others have said may hold anything.
    UNPRINTABLE = /[^[:print:]]+/
    private_constant :UNPRINTABLE

    class << self
      # Defines the tasks. memscope itself is loaded when one runs.
      #
      # @return [void]
      def define
        namespace :memscope do
          TASKS.each do |name, description|
            desc description
            task(name) { perform(name) }
          end
        end
      end

      private

      # What goes wrong is one line for people, not a trace.
      def perform(task)
        check_format(task == :metrics ? FORMATS.first(1) : FORMATS)
        require_relative "../memscope"
        target = target()
        warn "memscope:#{task}: of #{target}"
        print_of(target, task)
      rescue ArgumentError, Failure, LoadError => e
        abort "memscope:#{task}: #{e.message.gsub(UNPRINTABLE, ' ')}"
      end

      def print_of(target, task)
        case task
        when :report then report(target.read(:ledger))
        when :doctor then judge(target.read(:doctor))
        when :purge then account(target.purge(levers, dry_run: dry_run?))
        when :metrics then puts target.metrics
        else show(target.read(task))
        end
      end

      def check_format(formats)
        return if formats.include?(format)

        raise Failure, "FORMAT: given #{format.inspect}, allowed: #{formats.join(', ')}"
      end

      def target
        pid, url = ENV.values_at("PID", "URL").map { |text| text unless text.to_s.empty? }
        raise Failure, "PID and URL: given both, allowed: one of them" if pid && url

        require_relative "tasks/here"
        require_relative "tasks/listening"
        require_relative "tasks/mounted" if url # loads net/http
        return url ? Mounted.new(url) : Here.new unless pid

        # The application may have configured where the sockets are.
        Listening.new(pid).tap { Rake::Task[:environment].invoke if Rake::Task.task_defined?(:environment) }
      end

      def format = ENV.fetch("FORMAT", "text")

      def json? = format == "json"

      def levers = ENV.fetch("LEVERS", "").split(",").map(&:strip)

      def dry_run? = ENV.fetch("DRY_RUN", "0") != "0"

      # The ledger, or of a process that does not listen what the kernel tells.
      def report(ledger)
        return show(ledger) if json? || !ledger.is_a?(Ledger)

        require_relative "report"
        Report.print(ledger, $stdout)
      end

      def show(reading) = puts(json? ? reading.to_json : reading.to_s)

      # Of several workers each that did not purge is said.
      def account(purge)
        show(purge)
        failed = purge.is_a?(Purge::WorkerResults) ? purge.workers.select(&:reason) : []
        raise Failure, failed.map { |part| "worker #{part.index}: #{part.reason}" }.join("; ") if failed.any?
      end

      def judge(diagnosis)
        show(diagnosis)
        return if diagnosis.healthy?

        raise Failure, diagnosis.healthy?.nil? ? "could not be judged" : diagnosis.first.title
      end
    end

    define
  end
end
