# frozen_string_literal: true

# RUBYOPT loads this into the Ruby program that memscope has become, before its script, to carry out memscope's orders.
# The program may be another Ruby than memscope's, of any version.

if RUBY_VERSION < "3.1"
  $stderr.write("memscope: needs Ruby 3.1 or newer, and this program is run by #{RUBY_VERSION}: it does nothing here\n")
else
  require_relative "handoff"
  require_relative "inside"
  Memscope::Launch::Handoff.read.each { |mode, order| Memscope::Launch::Inside.of(mode, order).start }
end
