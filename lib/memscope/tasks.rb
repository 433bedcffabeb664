# frozen_string_literal: true

require "rake"

module Memscope
  # Rake tasks: `require "memscope/tasks"` in a Rakefile. In Rails the railtie does that.
  #
  # * memscope:report prints the ledger.
  # * memscope:doctor prints what is wrong, and fails if anything is.
  # * memscope:arenas and memscope:size_classes print what malloc holds.
  # * memscope:purge gives memory back and prints how much; LEVERS=gc,trim runs only these, DRY_RUN=1 only predicts.
  # * memscope:metrics prints the page for Prometheus.
  #
  # PID=4711 asks a process that listens. Without it, each task is about the rake process itself, and says so: rake is
  # not the server. FORMAT=json prints JSON. For a PID that does not listen, memscope:report shows the kernel's view.
  module Tasks
    extend Rake::DSL

    # A task cannot do what was asked of it; the message says why.
    class Failure < StandardError; end

    # Each task with its description in `rake -T`.
    TASKS = {
      report: "Print where the memory is, of this rake process or PID= (FORMAT=json)",
      doctor: "Print what is wrong with the memory, and fail if anything is (PID=, FORMAT=json)",
      arenas: "Print the arenas of malloc (PID=, FORMAT=json)",
      size_classes: "Print how full jemalloc's slabs are, by size (PID=, FORMAT=json)",
      purge: "Give memory back (LEVERS=gc,trim, DRY_RUN=1, PID=, FORMAT=json)",
      metrics: "Print the metrics of this rake process as Prometheus reads them"
    }.freeze
    # What FORMAT can be; the metrics are text.
    FORMATS = %w[text json].freeze
    # The messages of other processes may hold anything.
    UNPRINTABLE = /[^[:print:]]+/
    private_constant :UNPRINTABLE

    # The rake process itself.
    module Local
      class << self
        # @param call [Symbol] of Memscope
        # @return [Reading]
        def read(call) = Memscope.public_send(call)

        # @param levers [Array<String>]
        # @param dry_run [Boolean]
        # @return [Purge::Result]
        def purge(levers, dry_run:) = Memscope.purge(*levers.map(&:to_sym), dry_run: dry_run)

        # @return [String]
        def metrics = Memscope::Prometheus.text

        # @return [String]
        def to_s = "this rake process itself (pid #{Process.pid})"
      end
    end
    private_constant :Local

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

      # An error is one line for people, not a trace.
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
        when :purge then show(target.purge(levers, dry_run: dry_run?))
        when :metrics then puts target.metrics
        else show(target.read(task))
        end
      end

      def check_format(formats)
        return if formats.include?(format)

        raise Failure, "FORMAT: given #{format.inspect}, allowed: #{formats.join(', ')}"
      end

      def target
        pid = ENV.fetch("PID", "")
        return Local if pid.empty?

        require_relative "tasks/socket"
        # The application may configure where the sockets are.
        Socket.new(pid).tap { Rake::Task[:environment].invoke if Rake::Task.task_defined?(:environment) }
      end

      def format = ENV.fetch("FORMAT", "text")

      def json? = format == "json"

      def levers = ENV.fetch("LEVERS", "").split(",").map(&:strip)

      def dry_run? = ENV.fetch("DRY_RUN", "0") != "0"

      def report(ledger)
        return show(ledger) if json? || !ledger.is_a?(Ledger)

        require_relative "report"
        Report.print(ledger, $stdout)
      end

      def show(reading) = puts(json? ? reading.to_json : reading.to_s)

      def judge(diagnosis)
        show(diagnosis)
        return if diagnosis.healthy?

        raise Failure, diagnosis.healthy?.nil? ? "could not be judged" : diagnosis.first.title
      end
    end

    define
  end
end
