# frozen_string_literal: true

# How reports look: at most 80 columns, no space at the end of a line, and ASCII alone where that is asked for.
module Printed
  # @return [String] what Report.render makes of a reading or result
  def text(reading, unicode: false, **options)
    Memscope::Report.render(reading, unicode: unicode, **options).tap do |printed|
      assert_operator printed.lines.map { |line| line.chomp.length }.max, :<=, 80, printed
      assert_predicate printed, :ascii_only? unless unicode

      refute_match(/ $/, printed)
    end
  end
end
