# frozen_string_literal: true

# Checks the form of reports: at most 80 columns, no space at the end of a line, and only ASCII on request.
module Printed
  # @return [String] Report.render of a reading or result
  def text(reading, unicode: false, **options)
    Memscope::Report.render(reading, unicode: unicode, **options).tap do |printed|
      assert_operator printed.lines.map { |line| line.chomp.length }.max, :<=, 80, printed
      assert_predicate printed, :ascii_only? unless unicode

      refute_match(/ $/, printed)
    end
  end
end
