# frozen_string_literal: true

# Loaded into a Ruby program that `memscope exec` has become, before its script: proves that the allocator serves it,
# or ends it.

require_relative "hand_over"

order = Memscope::Launch::HandOver.take("prove_first")
if order
  require_relative "proof"
  objection = Memscope::Launch::Proof.objection_of_a_copy(order["expected"], Memscope::Launch::HandOver.load_path(order))
  if objection && order["if_present"]
    $stderr.write("memscope exec: #{objection}; the program goes on all the same (--if-present)\n")
  elsif objection
    $stderr.write("memscope exec: #{objection}; the program is not started\n")
    exit!(Integer(order["status"]))
  end
end
