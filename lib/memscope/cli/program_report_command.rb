# frozen_string_literal: true

require_relative "program_command"
require_relative "output_file"
require_relative "reading_options"

module Memscope
  module CLI
    # `memscope report -- COMMAND`: becomes a Ruby program that reports when it ends.
    class ProgramReportCommand < ProgramCommand
      include ReadingOptions

      # In seconds: a day.
      LONGEST_INTERVAL = 86_400
      private_constant :LONGEST_INTERVAL

      # @return [String]
      def self.title = "report"

      # @return [String]
      def self.summary = "run a Ruby program and print where its memory is when it ends"

      # @return [String]
      def self.example = "memscope report --every 60 --output app.txt -- bundle exec puma"

      private

      def declare(parser)
        @options = {}
        declare_output(parser)
        parser.on("--[no-]deep", "#{DEPTHS.fetch(:deep)} (the default here)") { |on| @options[:deep] = on }
        declare_depths(parser, %i[shared objects])
        declare_readings(parser)
      end

      def declare_output(parser)
        parser.on("--json", "print one JSON object a line") { @json = true }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
        parser.on("--every SECONDS", Float, "do so at this interval too") { |seconds| @every = seconds }
      end

      def notes
        <<~TEXT
          The report goes to standard error, or to FILE. It is of the process that is started,
          once, whichever Ruby programs that becomes by exec; no other process reports. There
          is none where the process ends by exit!, is killed, becomes another program by exec
          or takes no RUBYOPT, and none of what goes on in the background by Process.daemon,
          which is another process. The exit status is COMMAND's own. With --every, Ruby does
          not notice when all threads of the program wait for each other.
        TEXT
      end

      def start(program)
        refuse_interval if @every && !(@every.positive? && @every <= LONGEST_INTERVAL)
        refuse_depths
        refuse_other_programs(program, "report")

        environment = Launch::Environment.new(ENV)
        Launch::HandOver.give("report_last", environment, **order)
        refuse_assignments(program, environment)
        OutputFile.reserve(@output, Launch::Program::Unavailable) { become(program, environment) }
      end

      def order
        { every: @every, output: (File.expand_path(@output) if @output), json: @json,
          reading: (chosen.join(" ") if chosen.any?),
          options: { deep: true, **@options }.select { |_, on| on }.keys.join(" ") }
      end

      def refuse_interval
        raise Failure.new("--every: given #{@every}, allowed: a number of seconds above 0, up to #{LONGEST_INTERVAL}",
                          USAGE)
      end
    end
  end
end
