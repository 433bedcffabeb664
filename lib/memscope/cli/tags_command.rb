# frozen_string_literal: true

require_relative "../show/report/tags"

module Memscope
  module CLI
    # `memscope tags`: what the endpoints and jobs of a process allocate and retain.
    class TagsCommand < ReportCommand
      NOTES = <<~TEXT
        The process must set tags, by memscope's middleware for Rack or Sidekiq, or by
        Memscope.tag. Retained counts need a running object profile (the setting
        `objects_profile`, or memscope profile --objects --pid N meanwhile), two full
        garbage collections since that began, and 10 samples.
      TEXT
      private_constant :NOTES

      declare "print what endpoints and jobs allocate and retain", "memscope tags --pid 4711 --top 10",
              options: [*PROCESS, *TEXT, TOP], notes: NOTES, defaults: { top: Report::TagsPage::ROWS }

      private

      def calls = { tags: {} }

      def read = require_other || super

      def view = { limit: @given[:top] }

      def status(_tags) = FINE
    end
  end
end
