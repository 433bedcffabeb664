# frozen_string_literal: true

module Memscope
  module CLI
    # The help of a command: help/COMMAND.txt, in the form in which it is printed. Its lines declare the command's
    # options. The command's class has their arguments' limits, and their defaults, which are printed too. A line
    # that only begins an item of help/shared.txt, which has several commands' options, stands for the whole item.
    # @api private
    module Help
      # @return [Array<String>] the line with the usage, then the others, each option with all lines of its text
      def self.items(command)
        shared = text("shared").chomp.split("\n\n")
        text(command).chomp.split(/\n(?! {30})/).map do |line|
          shared.find { |item| item.start_with?("#{line} ", "#{line}\n") unless line.empty? } || line
        end
      end

      # @return [String] its purpose: "list Ruby processes, and show which of them listen"
      def self.summary(command) = text(command)[/^[A-Z].*(?=\.$)/].sub(/\A./, &:downcase)

      def self.text(name) = File.read("#{__dir__}/help/#{name}.txt", encoding: Encoding::UTF_8)
    end
  end
end
