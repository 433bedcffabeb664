# frozen_string_literal: true

require "memscope/show/report"
require_relative "bodies"

# Reports of ledgers that are made by hand.
module PrintedLedger
  def ledger(**given)
    Memscope::Ledger.capture(Bodies.ledger(**given), { memscope: "0.1.0", ruby: "3.1.2", pid: 4711, at: 0 })
  end

  def text(unicode: true, **given)
    Memscope::Report.render(ledger(**given), unicode: unicode)
  end
end
