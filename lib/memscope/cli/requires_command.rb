# frozen_string_literal: true

require "tempfile"

module Memscope
  module CLI
    # `memscope requires -- COMMAND`: what each file and gem that a Ruby program loads costs.
    class RequiresCommand < Command
      NOTES = <<~TEXT
        COMMAND runs to its end. The report goes to standard error, or to FILE. Load
        order matters: memory that is in use at the end is charged to the file that was
        being loaded when it was allocated, the innermost one. All costs sum to the
        growth of the rows "live slots" and "in use" of `memscope report` while COMMAND
        ran. Only the started process is measured, even past exec; no children.

        exit status: COMMAND's own
      TEXT
      FORMS = {
        program: { summary: "run a Ruby program and print what each gem and file that it loads costs",
                   example: "memscope requires -- bundle exec rails runner \"\"", notes: NOTES, defaults: { top: 20 },
                   options: [["--top N", OptionParser::DecimalInteger, Limit.of(1..10_000),
                              "how many gems and files to list"], *TEXT] }
      }.freeze
      private_constant :NOTES, :FORMS

      private

      def start(program)
        refuse_other_programs(program, "be measured")
        @out = @err # standard output is COMMAND's
        reserve_output { deliver_readings([record(program)], limit: @given[:top]) }
        FINE
      end

      # Runs a program to its end, in a child that becomes it.
      #
      # @return [Requires]
      # @raise [Failure] with the program's status, if it failed or wrote nothing
      def record(program)
        Tempfile.create("memscope") do |file|
          status = wait_for(fork { become_recorded(program, file.path) })
          text = file.read
          next Requires.from_json(text) if status.success? && !text.empty?

          code = status.exitstatus.to_i
          raise Failure.new("#{@command.first} #{failing(status)}", code.zero? ? INPUT_OUTPUT : code)
        end
      end

      def failing(status)
        return "was ended by SIG#{Signal.signame(status.termsig)}" if status.signaled?

        status.success? ? "ended without a report: by exit!, or by a program that takes no RUBYOPT" : "failed"
      end

      # Ends the program too if this process is asked to end.
      def wait_for(pid)
        _pid, status = Process.wait2(pid)
        status
      ensure
        Process.kill(:TERM, pid) unless status
      end

      # Runs in the child, and must not return.
      def become_recorded(program, path)
        environment = Launch::Environment.new(ENV)
        Launch::Handoff.write("requires", environment, title: self.class.title, output: path)
        refuse_assignments(program, environment)
        Process.exec(environment.changes, [program.path, @command.first], *@command.drop(1))
      rescue Launch::Refusal, SystemCallError => e
        say(e.message)
        exit!(INPUT_OUTPUT)
      end
    end
  end
end
