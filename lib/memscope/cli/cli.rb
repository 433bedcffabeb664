# frozen_string_literal: true

require_relative "../setup/facade"
require_relative "command"

module Memscope
  # The command line: `memscope COMMAND [options]`. Each command is a class, in a file that is loaded when it runs.
  #
  # Exit status: 0 for success, 64 for a usage error, 74 for a failure to read or write. From doctor, 1 means warnings,
  # and 2 means critical findings. From leaks and watch, 1 means a leak. A program that memscope execs exits with its
  # own status.
  # @api private
  module CLI
    # The names of the commands.
    COMMANDS = %w[report doctor census heap dump profile leaks tags requires watch postmortem purge attach top ps
                  exec mcp].freeze

    COMMANDS.each { |name| autoload :"#{name.capitalize}Command", "#{__dir__}/#{name}_command.rb" }

    class << self
      # Runs one command.
      #
      # @return [Integer] the exit status
      def run(arguments, out: $stdout, err: $stderr)
        # Paths may have any bytes, but OptionParser of Ruby 3.1 raises for a text that is invalid in its encoding.
        name, *rest = arguments.map { |argument| argument.valid_encoding? ? argument : argument.b }
        return Command.write(out, overview) if %w[-h --help help].include?(name)
        return Command.write(out, version) if %w[-v --version version].include?(name)

        return Command.write(err, overview) && Command::USAGE unless name

        command = named(name, COMMANDS, "--help", "--version")
        command.new(out: out, err: err).run(rest)
      rescue Failure => e
        err.puts "#{['memscope', command&.title].compact.join(' ')}: #{e.message}" unless e.message.empty?
        e.status
      end

      # @return [Class] the command with one of these names
      # @raise [Failure] for another name. The message has the others that are allowed too
      def named(name, names, *others)
        return const_get(:"#{name.capitalize}Command") if names.include?(name)

        allowed = [*names, *others]
        given = Command.questioned(name[0, 60], allowed)
        raise Failure.new(Command::USAGE, WORDS.fill(:unknown_command, given: given, allowed: allowed.join(", ")))
      end

      private

      def version = "memscope #{VERSION} (#{RUBY_DESCRIPTION})\n"

      def overview
        commands = COMMANDS.map { |name| "  #{name.ljust(COMMANDS.map(&:length).max)}  #{Help.summary(name)}" }
        format(Help.text("overview"), version: VERSION, commands: commands.join("\n"))
      end
    end
  end
end
