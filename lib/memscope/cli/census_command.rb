# frozen_string_literal: true

require_relative "../show/report/census"

module Memscope
  module CLI
    # `memscope census`: how many objects of which class a process has, or what grew since an earlier census; `memscope
    # census -- COMMAND`: how many objects of which class a Ruby program has when it ends.
    class CensusCommand < ReportCommand
      NOTES = <<~TEXT
        Ruby's internal objects, which are hidden from Ruby code, count too, by type or
        kind (T_STRING, imemo_iseq). So does garbage, unless --gc collects it first. To
        find what grows, save one census with --json --output FILE, and print the growth
        since then with --since FILE; with --gc both times, garbage is not growth.
        Counting stops Ruby for 5 to 12 ms per million objects. With --pid, a child
        forked by that process counts a large heap, and only the fork stops Ruby.
      TEXT
      VIEW = [["--by NAME", Census::GROUPINGS.keys, Census::GROUPINGS.keys.join(", ")],
              ["--top N", OptionParser::DecimalInteger, Limit.of(1..10_000), "the number of rows to print"], GC].freeze
      DEFAULTS = { by: :class, top: Report::CensusPage::ROWS }.freeze
      FORMS = {
        process: { summary: "count the objects of a process by class, and show what grew",
                   example: "memscope census --pid 4711 --gc --since before.json", notes: NOTES, defaults: DEFAULTS,
                   options: [*PROCESS, *TEXT, *VIEW,
                             ["--since FILE", "print the growth since the census", "in FILE, written with --json"]] },
        program: { summary: "run a Ruby program and count its objects when it ends",
                   example: "memscope census --gc --output census.txt -- bundle exec rake import",
                   notes: PROGRAM_NOTES, defaults: DEFAULTS, options: [*EVERY, *VIEW] }
      }.freeze
      private_constant :NOTES, :VIEW, :DEFAULTS, :FORMS

      private

      def read
        since = earlier(Census)
        reading = ask(:census, **calls[:census])
        [since ? reading - since : reading]
      end

      def calls = { census: @given.slice(:gc) }

      def view = { by: @given[:by], limit: @given[:top] }
    end
  end
end
