# frozen_string_literal: true

module Memscope
  module CLI
    # What commands do with -- COMMAND: another one of that name becomes this program. Whoever includes it has
    # `program_command`, the class of the other.
    module OfProgram
      # @param arguments [Array<String>] behind the command's name
      # @return [Integer] the exit status
      def run(arguments) = arguments.include?("--") ? of_program.run(arguments) : super

      # @return [String] for people
      def help = "#{super}\n#{of_program.help}"

      private

      def of_program = program_command.new(out: @out, err: @err)
    end
  end
end
