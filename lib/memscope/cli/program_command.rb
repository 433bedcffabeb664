# frozen_string_literal: true

require_relative "command"
require_relative "../launch"

module Memscope
  module CLI
    # A command that becomes another program: `memscope NAME [options] -- COMMAND [ARG...]`. That program's exit status
    # and signals are its own, since no process of memscope's is left.
    class ProgramCommand < Command
      # @param arguments [Array<String>] behind the command's name
      # @return [Integer] the exit status, unless it has become the program
      def run(arguments)
        own = arguments.take_while { |argument| argument != "--" }
        @command = arguments.drop(own.size + 1)
        super(own)
      rescue Launch::Misuse => e
        raise Failure.new(e.message, USAGE)
      rescue Launch::Refusal => e
        raise Failure.new("#{e.message}; #{@command.first} is not started", INPUT_OUTPUT)
      rescue Launch::Program::Unavailable => e
        raise Failure.new(e.message, e.status)
      end

      private

      def operands = "-- COMMAND [ARG...]"

      def perform
        raise Failure.new("no command given; allowed: #{operands}", USAGE) if @command.empty?

        start(Launch::Program.new(@command, ENV.fetch("PATH", nil)))
      end

      # What is loaded into the program is memscope's own, for this Ruby: only that can "report", or "be profiled".
      def refuse_other_programs(program, can)
        unless program.ruby?
          raise Failure.new("#{@command.first} is run by #{program.executable}, and only #{RbConfig.ruby}, which " \
                            "runs memscope, can #{can}: nothing is started", USAGE)
        end
        raise Failure.new(Memscope.unsupported_reason, INPUT_OUTPUT) unless Memscope.supported?
      end

      # env(1), as the command or in the first line of a script, would set these after what has been prepared.
      def refuse_assignments(program, environment)
        name = program.assigned.find { |name| environment.changes.key?(name) || (block_given? && yield(name)) }
        return unless name

        title = "memscope #{self.class.title}"
        raise Launch::Refusal, "#{name} is set by env in the command, after #{title} has prepared the environment; " \
                               "set it for #{title} itself: env #{name}=... #{title} -- ..."
      end

      def become(program, environment)
        environment.notes.each { |note| say(note) }
        Process.exec(environment.changes, [program.path, @command.first], *@command.drop(1))
      rescue SystemCallError => e
        raise Launch::Program::Unavailable.new(program.path, e.class)
      end

      def say(note)
        @err.puts "memscope #{self.class.title}: #{note}"
      end
    end
  end
end
