# frozen_string_literal: true

require_relative "program_report_command"

module Memscope
  module CLI
    # `memscope doctor -- COMMAND`: becomes a Ruby program that is diagnosed when it ends. With --every, what it has at
    # the first diagnosis is what growth is judged by.
    class ProgramDoctorCommand < ProgramReportCommand
      # @return [String]
      def self.title = "doctor"

      # @return [String]
      def self.summary = "run a Ruby program and say what is wrong with its memory when it ends"

      # @return [String]
      def self.example = "memscope doctor --every 600 --output app.txt -- bundle exec puma"

      private

      def declare(parser)
        @options = {}
        choose(:doctor)
        declare_output(parser)
      end
    end
  end
end
