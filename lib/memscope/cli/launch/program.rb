# frozen_string_literal: true

require "rbconfig"

module Memscope
  module Launch
    # A command, as far as memscope looks at it before it becomes the program: the program itself proves which allocator
    # serves its malloc. A script is not looked at: its interpreter may be any.
    class Program
      ELF = "\x7FELF".b.freeze
      private_constant :ELF

      # @return [Array<String>] the command and its arguments
      attr_reader :command

      # @param command [Array<String>]
      def initialize(command)
        @command = command
      end

      # @return [String, nil] its path, if it is an executable other than the Ruby that runs memscope, and so runs
      #   nothing of memscope itself; nil also for a script, or a file that is not found
      def stranger
        path = find(command.first) or return

        path if File.binread(path, ELF.bytesize) == ELF && !File.identical?(path, RbConfig.ruby)
      rescue SystemCallError
        nil # it may be executed, and not read
      end

      # Becomes the program.
      #
      # @param environment [Environment]
      # @raise [SystemCallError]
      def exec(environment)
        Process.exec(environment.changes, [command.first, command.first], *command.drop(1))
      end

      private

      def find(name)
        directories = name.include?("/") ? [""] : ENV.fetch("PATH", "").split(":")
        directories.map { |directory| directory.empty? ? name : File.join(directory, name) }
                   .find { |path| File.file?(path) && File.executable?(path) }
      end
    end
  end
end
