# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope tags`: the memory that the endpoints and jobs of a process allocate and retain.
    class TagsCommand < ReportCommand
      declare defaults: { top: Report::ListPage::VIEW[:limit] }

      private

      def calls = { tags: {} }

      def read = require_other && super

      def view = { limit: @given[:top] }

      def status(_tags) = FINE
    end
  end
end
