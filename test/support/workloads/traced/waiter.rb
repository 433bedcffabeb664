# frozen_string_literal: true

# Waits for any child again and again, while it has none. Prints each pid that it gets, and each SIGCHLD.

trap("CHLD") { puts "SIGCHLD" }
$stdout.sync = true
puts "ready"
loop do
  puts "waited for #{Process.wait(-1)}"
rescue Errno::ECHILD
  sleep 0.0005
end
