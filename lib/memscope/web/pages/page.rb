# frozen_string_literal: true

module Memscope
  module Web
    module Pages
      # One reading, as it is shown: a template for HTML; JSON and text are the reading's own.
      #
      # @api private
      class Page
        class << self
          # @return [String]
          attr_reader :title
          # @return [Symbol] of views/
          attr_reader :template

          private

          def shows(title, template)
            @title = title
            @template = template
          end
        end

        # @param readings [Readings]
        # @param request [Request]
        def initialize(readings, request)
          @readings = readings
          @request = request
        end

        # @return [Reading] what JSON and text are of
        def reading = raise(NotImplementedError)

        # @return [String]
        def json = reading.to_json

        # @return [String]
        def text = reading.to_s

        # @return [String]
        def title = self.class.title

        # @return [Symbol] of views/
        def template = self.class.template

        private

        def read(kind, *arguments) = @readings.fetch(kind, *arguments)
      end
    end
  end
end
