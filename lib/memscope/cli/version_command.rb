# frozen_string_literal: true

require_relative "command"

module Memscope
  module CLI
    # `memscope version`: this memscope, and the Ruby that runs it.
    class VersionCommand < Command
      # @return [String]
      def self.title = "version"

      # @return [String]
      def self.summary = "print the version of memscope and of Ruby"

      # @return [String]
      def self.example = "memscope version --json"

      private

      def declare(parser)
        parser.on("--json", "print one JSON object") { @json = true }
      end

      def perform
        self.class.write(@out, @json ? json : "memscope #{VERSION} (#{RUBY_DESCRIPTION})\n")
      end

      def json
        require "json"
        "#{JSON.generate(memscope: VERSION, ruby: RUBY_VERSION)}\n"
      end
    end
  end
end
