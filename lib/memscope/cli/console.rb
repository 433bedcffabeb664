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
      end
      private_constant :OnItself

      category "memscope"
      description WORDS[:console]
      help_message WORDS[:console_help]

      # @param argument [String] the rest of the line
      def execute(argument)
        name, rest = argument.split(" ", 2)
        name == "measure" && rest ? measure(rest) : run(argument)
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

      def measure(expression)
        $stdout.write(Report.render(Memscope.measure { irb_context.workspace.evaluate(expression, "(mem)") },
                                    **Report::Display.of($stdout).to_h))
      end
    end

    IRB::Command.register(:mem, Console)
  end
end
