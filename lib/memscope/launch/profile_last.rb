# frozen_string_literal: true

# Loaded into a Ruby program that `memscope profile` or `memscope leaks` has become, before its script: profiles it, and
# reports when it ends.

require_relative "hand_over"

order = Memscope::Launch::HandOver.take("profile_last", keep: true)
if order
  require_relative "program_profile"
  Memscope::Launch::ProgramProfile.new(order).start
end
