# frozen_string_literal: true

# Loaded into a Ruby program that `memscope report` has become, before its script: reports when it ends.

require_relative "hand_over"

order = Memscope::Launch::HandOver.take("report_last", keep: true)
if order
  require_relative "program_report"
  Memscope::Launch::ProgramReport.new(order).start
end
