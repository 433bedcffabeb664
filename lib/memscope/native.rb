# frozen_string_literal: true

module Memscope
  # The extension's side of memscope: each method returns the body of one reading. This is the only file that loads
  # the extension; where there is none, the same methods answer what Ruby alone knows, and why for the rest.
  #
  # @api private
  module Native
    class << self
      # @return [String, nil] why the extension is not there
      attr_reader :absence

      private

      def load_extension
        require "memscope/memscope.so"
      rescue LoadError => e
        @absence = explain(e).freeze
        require_relative "native/absent"
        extend Absent

        Memscope.define_singleton_method(:rss) { nil }
      end

      def explain(error)
        unless RUBY_ENGINE == "ruby"
          return "memscope's extension is written for CRuby; this is #{RUBY_ENGINE} #{RUBY_ENGINE_VERSION}"
        end
        return "memscope reads Linux's /proc; this is #{RUBY_PLATFORM}" unless RUBY_PLATFORM.include?("linux")

        "memscope's extension could not be loaded: #{error.message}"
      end
    end

    load_extension
  end
  private_constant :Native
end
