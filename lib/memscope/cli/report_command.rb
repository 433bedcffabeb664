# frozen_string_literal: true

require_relative "command"

module Memscope
  module CLI
    # `memscope report`: where the memory of a process is; `memscope report -- COMMAND`: of a Ruby program when it ends.
    class ReportCommand < Command
      TITLE = "report"
      PROGRAM_NOTES = <<~TEXT
        The report goes to standard error, or to FILE. Only the process that memscope starts
        reports, once, whichever Ruby programs it execs; its children do not. No report if it
        calls exit!, is killed, execs another kind of program, ignores RUBYOPT, or continues
        in the background by Process.daemon. The exit status is COMMAND's own. With --every,
        Ruby does not detect a deadlock of all threads.
      TEXT
      FORMS = {
        process: { summary: "print where the memory of a process is, to the byte",
                   example: "memscope report --json --output ledger.json" },
        program: { summary: "run a Ruby program and print where its memory is when it ends",
                   example: "memscope report --every 60 --output app.txt -- bundle exec puma", notes: PROGRAM_NOTES }
      }.freeze
      # The readings other than the ledger, by the calls that read them.
      READINGS = { mappings: "each mapping and the rows that own it", arenas: "malloc's arenas",
                   size_classes: "slab use by size (jemalloc)", fragmentation: "free memory, by how to return it",
                   workers: "each process of the Puma cluster" }.freeze
      # The options of the ledger.
      DEPTHS = { deep: "walk the chunks of glibc's malloc", shared: "split rows into shared and private",
                 objects: "ask objects what they hold in malloc" }.freeze
      private_constant :PROGRAM_NOTES, :READINGS, :DEPTHS

      private

      def declare(parser)
        declare_pid(parser)
        declare_json(parser, " a reading")
        declare_output(parser)
        declare_depths(parser, DEPTHS.keys)
        declare_readings(parser)
      end

      def declare_program(parser)
        declare_every(parser)
        parser.on("--[no-]deep", "#{DEPTHS.fetch(:deep)} (default)") { |on| options[:deep] = on }
        declare_depths(parser, %i[shared objects])
        declare_readings(parser)
      end

      def declare_every(parser)
        declare_json(parser, " a line")
        declare_output(parser)
        parser.on("--every SECONDS", Float, "report at this interval too") { |seconds| @every = seconds }
      end

      def declare_depths(parser, names)
        names.each { |name| parser.on(option(name), DEPTHS.fetch(name)) { options[name] = true } }
      end

      def declare_readings(parser)
        READINGS.each { |name, text| parser.on(option(name), "instead, #{text}") { choose(name) } }
      end

      def option(name) = "--#{name.name.tr('_', '-')}"

      # The options of the ledger.
      def options = @options ||= {}

      # The names of other readings.
      def chosen = @chosen ||= []

      def choose(name) = @chosen = chosen | [name]

      def refuse_depths
        given = options.key(true)
        refuse("#{option(chosen.first)} takes no #{option(given)}") if chosen.any? && given
      end

      def perform
        refuse_depths
        readings = other? ? asking { readings_of_other } : own_readings
        deliver_readings(readings)
        readings.all?(&:known?) ? FINE : INPUT_OUTPUT
      end

      def own_readings
        say("this is the memscope process itself; for your program: memscope report -- COMMAND")
        chosen.empty? ? [Memscope.ledger(**options)] : chosen.map { |name| Memscope.public_send(name) }
      end

      # A process that does not listen has the kernel's view, for the default reading only.
      def readings_of_other
        chosen.empty? ? [other.call(:ledger, **options)] : chosen.map { |name| other.call(name) }
      rescue Client::Unreachable => e
        raise if @socket || chosen.any? || options.any? || e.why == :gone

        outside = Outside.read(@pid)
        say("#{e.message}; this is the kernel's view only")
        [outside]
      end

      def start(program)
        check_seconds("every", @every)
        refuse_depths
        refuse_other_programs(program, "report")
        depths = { deep: true, **options }.select { |_, on| on }.keys
        hand_over("report", program, Launch::Environment.new(ENV), every: @every, json: @json,
                                                                   reading: (chosen.join(" ") if chosen.any?),
                                                                   options: depths.join(" "))
      end
    end
  end
end
