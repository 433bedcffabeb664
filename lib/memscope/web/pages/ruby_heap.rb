# frozen_string_literal: true

require_relative "../../report"
require_relative "page"

module Memscope
  module Web
    module Pages
      # Ruby's own heap: how full its pages are.
      #
      # @api private
      class RubyHeap < Page
        shows "Ruby heap", :ruby_heap

        # Of slots, that pages are sorted by.
        TENTHS = ["below 10 %", *(1..8).map { |tenth| "#{tenth}0 to #{tenth}9 %" }, "90 to 100 %"].freeze

        # @return [Memscope::RubyHeap]
        def reading = @reading ||= read(:ruby_heap)

        # @return [String]
        def text = Memscope::Report.render(reading, unicode: true)
      end
    end
  end
end
