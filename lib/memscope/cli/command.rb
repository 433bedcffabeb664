# frozen_string_literal: true

require "optparse"

module Memscope
  module CLI
    # Ends a command with a message and an exit status.
    class Failure < StandardError
      # @return [Integer]
      attr_reader :status

      # @param message [String]
      # @param status [Integer]
      def initialize(message, status)
        super(message)
        @status = status
      end
    end

    # What all commands do: parse, refuse, help, write. A subclass has `title`, `summary` and `example`, declares its
    # options in `declare`, and does its work in `perform`.
    class Command
      # The exit status when all went well.
      FINE = 0
      # The exit status when the arguments cannot be understood (EX_USAGE of sysexits.h).
      USAGE = 64
      # The exit status when something could not be read or written (EX_IOERR of sysexits.h).
      INPUT_OUTPUT = 74
      # Columns of the help.
      WIDTH = 80
      private_constant :WIDTH

      # Writes all of a text, or fails saying why.
      #
      # @param out [IO]
      # @param text [String]
      # @return [Integer] FINE
      # @raise [Failure]
      def self.write(out, text)
        out.write(text)
        out.flush
        FINE
      rescue SystemCallError, IOError => e
        raise Failure.new("standard output: #{e.message}", INPUT_OUTPUT)
      end

      # @param out [IO]
      # @param err [IO]
      def initialize(out:, err:)
        @out = out
        @err = err
        @help = false
        @parser = OptionParser.new
        @parser.version = VERSION
        declare(@parser)
        @parser.on("-h", "--help", "print this") { @help = true }
      end

      # @param arguments [Array<String>] behind the command's name
      # @return [Integer] the exit status
      def run(arguments)
        rest = @parser.parse(arguments)
        return self.class.write(@out, help) if @help

        take(rest)
        perform
      rescue OptionParser::ParseError => e
        refuse(e.message)
      end

      # @return [String] for people
      def help
        [usage, "#{self.class.summary.sub(/\A./, &:upcase)}.\n", @parser.summarize.join, notes,
         "example:\n  #{self.class.example}\n"].compact.join("\n")
      end

      private

      def declare(parser); end

      # What stands behind the options.
      def take(rest)
        refuse("unexpected argument: #{rest.first}") unless rest.empty?
      end

      def refuse(complaint)
        raise Failure.new("#{complaint}; allowed: #{[*allowed, *operands].join(', ')}", USAGE)
      end

      def allowed = @parser.top.list.map { |switch| "#{switch.long.first}#{switch.arg}" }

      # What stands behind the options, for the help.
      def operands = nil

      # Paragraphs for the help.
      def notes = nil

      def usage
        start = "usage: memscope #{self.class.title}"
        words = [*(allowed - ["--help"]).map { |option| "[#{option}]" }, *operands]
        lines = words.each_with_object([+""]) do |word, filled|
          filled << +"" if start.size + filled.last.size + word.size >= WIDTH
          filled.last << " " << word
        end
        "#{start}#{lines.join("\n#{' ' * start.size}")}\n"
      end
    end
  end
end
