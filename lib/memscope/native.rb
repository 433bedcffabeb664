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
        require_relative "native/absent"
        extend Absent

        @absence = Absent.reason(e).freeze
        Memscope.define_singleton_method(:rss) { nil }
      end
    end

    load_extension
  end
  private_constant :Native
end
