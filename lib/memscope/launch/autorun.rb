# frozen_string_literal: true

# RUBYOPT loads this into the Ruby program that memscope has become, before its script, to carry out memscope's orders.

require_relative "handoff"

Memscope::Launch::Handoff.read.each do |mode, order|
  case mode
  when "prove"
    require_relative "proof"
    Memscope::Launch::Proof.enforce(order)
  when "profile"
    require_relative "program_profile"
    Memscope::Launch::ProgramProfile.new(order).start
  when "requires"
    require_relative "program_requires"
    Memscope::Launch::ProgramRequires.new(order).start
  when "report"
    require_relative "program_report"
    Memscope::Launch::ProgramReport.new(order).start
  end
end
