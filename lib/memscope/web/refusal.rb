# frozen_string_literal: true

module Memscope
  module Web
    # Why a request of somebody who may ask is not answered as asked: the status, and a sentence for them.
    #
    # @api private
    class Refusal < StandardError
      # @return [Integer]
      attr_reader :status
      # @return [Hash{String => String}]
      attr_reader :headers

      def initialize(status, sentence, headers = {})
        @status = status
        @headers = headers
        super(sentence)
      end
    end
  end
end
