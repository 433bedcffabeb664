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
        In a forked worker, --private counts what it no longer shares with its parent
        and siblings: the classes whose objects were written to, or lie beside those.
      TEXT
      private_constant :NOTES

      declare "count the objects of a process by class, and show what grew",
              "memscope census --pid 4711 --gc --since before.json",
              "memscope census --gc --output census.txt -- bundle exec rake import",
              options: [*PROCESS, *TEXT, MARKDOWN, TOP, GC, SINCE, EVERY,
                        ["--private", "only objects on pages that no other process shares"],
                        ["--by NAME", Limit.one_of(Census::GROUPINGS.keys), Census::GROUPINGS.keys.join(", ")]],
              program: [:every], process: %i[since private], notes: "#{NOTES}\n#{PROGRAM_NOTES}",
              defaults: { by: :class, top: Report::CensusPage::ROWS }

      private

      def read
        since = saved(Census, :since)
        super.map { |reading| since ? reading - since : reading }
      end

      def calls = { census: @given.slice(:gc, :private) }

      def view = { **super, by: @given[:by], limit: @given[:top] }
    end
  end
end
