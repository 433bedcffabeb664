# frozen_string_literal: true

require "rake"

module Memscope
  # Rake tasks: `require "memscope/tasks"` in a Rakefile. In Rails the railtie does that.
  #
  # * memscope:report prints the ledger.
  # * memscope:doctor prints findings, and fails if one is a warning or critical, or if the RSS is unknown.
  # * memscope:arenas and memscope:size_classes print the memory of malloc.
  # * memscope:census counts objects by class.
  # * memscope:heap prints who holds objects; with PATHS_TO=Order, who holds the objects of class Order.
  # * memscope:purge returns memory and prints how much, by levers that do no harm; LEVERS=gc,trim runs these levers,
  #   DRY_RUN=1 only predicts.
  # * memscope:metrics prints the page for Prometheus.
  #
  # PID=4711 asks a process that listens; no application is loaded for that. Without PID, each task is about the rake
  # process itself, and says so: rake is not the server. FORMAT=json prints JSON. For a PID that does not listen,
  # memscope:report shows the kernel's view.
  module Tasks
    extend Rake::DSL

    # A task cannot do its work; the message says why.
    class Failure < StandardError; end

    # Each task with its description in `rake -T`.
    TASKS = {
      report: "Print where the memory of this rake process, or of PID=, is (FORMAT=json)",
      doctor: "Diagnose the memory, and fail at a warning (PID=, FORMAT=json)",
      arenas: "Print the arenas of malloc (PID=, FORMAT=json)",
      size_classes: "Print how full jemalloc's slabs are, by size (PID=, FORMAT=json)",
      census: "Count the objects of this rake process, or of PID=, by class (FORMAT=json)",
      heap: "Print who holds the objects (PATHS_TO=Order, PID=, FORMAT=json)",
      purge: "Return memory to the kernel (LEVERS=gc,trim, DRY_RUN=1, PID=, FORMAT=json)",
      metrics: "Print the metrics of this rake process as Prometheus reads them"
    }.freeze
    # The values of FORMAT; the metrics are always text.
    FORMATS = %w[text json].freeze
    PID = /\A[1-9]\d{0,9}\z/
    private_constant :PID

    class << self
      # Defines the tasks. memscope itself is loaded when a task runs.
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

      # An error is one line for people, not a trace.
      def perform(task)
        formats = task == :metrics ? FORMATS.first(1) : FORMATS
        refuse("FORMAT", format, formats.join(", ")) unless formats.include?(format)
        require_relative "../memscope"

        client = client()
        target = client ? "process #{client.pid}" : "this rake process itself (pid #{Process.pid})"
        warn "memscope:#{task}: for #{target}"
        print_of(client, task)
      rescue ArgumentError, Failure, LoadError => e
        # Messages from other processes may contain any characters.
        abort "memscope:#{task}: #{e.message.gsub(/[^[:print:]]+/, ' ')}"
      end

      # @return [Client, nil] a client of the process PID; nil without PID
      def client
        pid = ENV.fetch("PID", "")
        return if pid.empty?

        refuse("PID", pid, "the number of a process, as `memscope ps` lists them") unless PID.match?(pid)
        Client.new(pid.to_i)
      end

      def refuse(variable, given, allowed)
        raise Failure, "#{variable}: given #{given.inspect}, allowed: #{allowed}"
      end

      def print_of(client, task)
        case task
        when :report then report(read(client, :ledger))
        when :doctor then judge(read(client, :doctor))
        when :heap then show(read(client, :heap_graph, **{ paths_to: ENV.fetch("PATHS_TO", nil) }.compact))
        when :purge then show(purge(client))
        when :metrics then puts metrics(client)
        else show(read(client, task))
        end
      rescue Client::Unreachable, Client::Failed => e
        raise Failure, "PID: #{e.message}"
      rescue Purge::Busy => e
        raise Failure, e.message
      end

      # For a process without a listener, the ledger is the kernel's view, with a warning.
      def read(client, call, **options)
        client ? client.call(call, **options) : Memscope.public_send(call, **options)
      rescue Client::Unreachable => e
        raise if call != :ledger || e.why == :gone

        view = ExternalProcess.read(client.pid)
        warn "memscope:report: #{e.message}; this is the kernel's view only"
        view
      end

      def purge(client)
        levers = ENV.fetch("LEVERS", "").split(",").map { |name| name.strip.to_sym }
        dry_run = ENV.fetch("DRY_RUN", "0") != "0"
        client ? client.call(:purge, levers: levers, dry_run: dry_run) : Memscope.purge(*levers, dry_run: dry_run)
      end

      def metrics(client)
        refuse("PID", client.pid, "none; a server's metrics are on its page /metrics") if client

        Memscope::Prometheus.text
      end

      def format = ENV.fetch("FORMAT", "text")

      def json? = format == "json"

      def report(ledger)
        return show(ledger) if json? || !ledger.is_a?(Ledger)

        require_relative "report"
        Report.print(ledger, $stdout)
      end

      def show(reading) = puts(json? ? reading.to_json : reading.to_s)

      def judge(diagnosis)
        show(diagnosis)
        raise Failure, "could not be judged" if diagnosis.verdict == :unknown
        raise Failure, diagnosis.first.title if diagnosis.verdict == :problems
      end
    end

    define
  end
end
