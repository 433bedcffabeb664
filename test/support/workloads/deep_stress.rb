# frozen_string_literal: true

# Deep ledgers for ENV["SECONDS"], more than one a second, while four threads without the GVL allocate, free and trim.
# Prints how many were read and walked, and each whose rows did not sum to its own scan.

require "json"
require "memscope_test"
require_relative "../ledger_tree"

seconds = Integer(ENV.fetch("SECONDS"))
finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
read = walked = 0
faults = []
Host.start_churning(4, true)
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish || read <= seconds
  ledger = Memscope.ledger(deep: true)
  read += 1
  walked += 1 if ledger.dig(:malloc, :main_heap, :in_use).bytes.positive?
  faults.concat(LedgerTree.new(JSON.parse(ledger.to_json)).gaps)
end
Host.stop_churning
puts JSON.generate(ledgers: read, walked: walked, faults: faults)
