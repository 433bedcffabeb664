# frozen_string_literal: true

require "irb"
require "shellwords"
require_relative "cli"

# IRB 1.13 is the first whose commands others can add to.
raise LoadError, Memscope::CLI::WORDS.fill(:irb_too_old, version: IRB::VERSION) unless defined?(IRB::Command.register)

module Memscope
  module CLI
    # The command `mem` in IRB, and so in a Rails console: `require "memscope/irb"`. It asks about this process what the
    # command line asks about others.
    class Console < IRB::Command::Base
      NAMES = %w[report doctor census heap dump watch tags purge].freeze

      # A command that is meant to be about its own process.
      module OnItself
        private

        def note_own = nil

        def require_other = nil

        # It would become the program, and the console would be gone.
        def launch = usage_error(:not_in_console)
      end
      private_constant :OnItself

      category "memscope"
      description WORDS[:console]
      help_message WORDS[:console_help]

      # @param argument [String] the rest of the line
      def execute(argument)
        name, rest = argument.split(" ", 2)
        case name
        when "--help", "-h" then puts WORDS[:console_help]
        when "measure" then rest.to_s.empty? ? warn("mem: #{WORDS[:without_expression]}") : measure(rest)
        else run(argument)
        end
        nil
      end

      private

      def run(argument)
        name, *options = Shellwords.split(argument)
        command = CLI.named(name || "report", NAMES, "measure EXPRESSION")
        options.unshift("--paths-to") if name == "heap" && options.first&.match?(/\A[A-Z]/)
        command.new(out: $stdout, err: $stderr).extend(OnItself).run(options)
      rescue ArgumentError, Failure => e
        warn "mem: #{e.message}"
      end

      # The expression is compiled before it is measured. Its local variables are the console's, not the block's.
      def measure(expression)
        workspace = irb_context.workspace
        workspace.evaluate("if false\n#{expression}\nend", "(mem)", 0)
        block = workspace.evaluate("proc {\n#{expression}\n}", "(mem)", 0)
        $stdout.write(Report.render(Memscope.measure(&block), **Report::Display.of($stdout).to_h))
      end
    end

    IRB::Command.register(:mem, Console)
  end
end
