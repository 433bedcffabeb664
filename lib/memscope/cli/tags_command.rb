# frozen_string_literal: true

require_relative "../report/tags"

module Memscope
  module CLI
    # `memscope tags`: what the endpoints and jobs of a process allocate and retain.
    class TagsCommand < Command
      NOTES = <<~TEXT
        The process must set tags, by memscope's middleware for Rack or Sidekiq, or by
        Memscope.tag. Retained counts need a running object profile (the setting
        `objects_profile`, or memscope profile --objects --pid N meanwhile), and two
        full garbage collections since that began; with --seconds, two after the first
        reading. For a tag with fewer than 10 samples, there is only an
        upper bound, such as "<120".
      TEXT
      FORMS = {
        process: { summary: "print what endpoints and jobs allocate and retain",
                   example: "memscope tags --pid 4711 --seconds 600", notes: NOTES,
                   defaults: { top: Report::TagsPage::ROWS },
                   options: [*PROCESS, *TEXT, ["--seconds S", Float, SECONDS, "count only the next S seconds"],
                             ["--top N", OptionParser::DecimalInteger, Limit.of(1..10_000),
                              "the number of rows to print"]] }
      }.freeze
      private_constant :NOTES, :FORMS

      private

      def perform
        usage_error("no process given; allowed: --pid N, --socket PATH") unless other?
        deliver_readings([read], limit: @given[:top])
        FINE
      end

      def read
        return ask(:tags) unless @given[:seconds]

        earlier = ask(:tags)
        wait
        ask(:tags) - earlier
      end
    end
  end
end
