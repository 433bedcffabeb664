# frozen_string_literal: true

require_relative "spelling"
require_relative "facade"
%w[command dump_files report_command doctor_command census_command heap_command dump_command convert_command
   profile_command leaks_command tags_command requires_command exercise_command watch_command policy_command
   purge_command ps_command top_command exec_command]
  .each { |part| require_relative "cli/#{part}" }

module Memscope
  # The command line: `memscope COMMAND [options]`. Each command is a class.
  #
  # Exit status: 0 for success, 64 for a usage error, 74 for a failure to read or write. From doctor, 1 means warnings,
  # and 2 means critical findings; from leaks, exercise and watch, 1 means that memory grows; from requires, 1 means
  # that a program costs more than its limit. A program that memscope execs exits with its own status.
  module CLI
    # `memscope version`: this memscope, and the Ruby that runs it.
    class VersionCommand < Command
      FORMS = { process: { summary: "print the version of memscope and of Ruby",
                           example: "memscope version --json", options: TEXT.first(1) } }.freeze
      private_constant :FORMS

      private

      def perform
        require "json"
        json = "#{JSON.generate(memscope: VERSION, ruby: RUBY_VERSION)}\n" if @given[:json]
        self.class.write(@out, json || "memscope #{VERSION} (#{RUBY_DESCRIPTION})\n")
      end
    end

    # Each command by its name.
    COMMANDS = [ReportCommand, DoctorCommand, CensusCommand, HeapCommand, DumpCommand, ConvertCommand, ProfileCommand,
                LeaksCommand, TagsCommand, RequiresCommand, ExerciseCommand, WatchCommand, PolicyCommand, PurgeCommand,
                TopCommand, PsCommand, ExecCommand, VersionCommand]
               .to_h { |command| [command.title, command] }.freeze

    class << self
      # Runs one command.
      #
      # @param arguments [Array<String>] as in ARGV
      # @param out [IO]
      # @param err [IO]
      # @return [Integer] the exit status
      def run(arguments, out: $stdout, err: $stderr)
        name, *rest = arguments
        return Command.write(out, overview) if %w[-h --help help].include?(name)

        command = %w[-v --version].include?(name) ? VersionCommand : COMMANDS[name]
        command ? command.run(rest, out: out, err: err) : refuse(name, err)
      rescue Failure => e
        err.puts "#{['memscope', command&.title].compact.join(' ')}: #{e.message}"
        e.status
      end

      # @param given [String] a wrong word
      # @param known [Array<String>]
      # @return [String] "reprot (did you mean report?)"
      def questioned(given, known)
        nearest = Spelling.nearest(given, known)
        nearest ? "#{given} (did you mean #{nearest}?)" : given
      end

      private

      def overview
        width = COMMANDS.keys.map(&:length).max
        <<~TEXT
          memscope #{VERSION}: where the memory of a Ruby process is

          usage: memscope COMMAND [options]

          #{COMMANDS.map { |name, command| "  #{name.ljust(width)}  #{command.summary}" }.join("\n")}

          `memscope COMMAND --help` shows the options and an example.
        TEXT
      end

      def refuse(name, err)
        allowed = [*COMMANDS.keys, "--help", "--version"]
        unknown = "unknown command: #{questioned(name[0, 60], allowed)}" if name
        err.puts(unknown ? "memscope: #{unknown}; allowed: #{allowed.join(', ')}" : overview)
        Command::USAGE
      end
    end
  end
end
