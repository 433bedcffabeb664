# frozen_string_literal: true

# Does in a loop what others can see: writes to a pipe and to a file, creates and unlinks a file, sends itself signals,
# starts processes and counts in memory that it shares with a child. On SIGTERM, prints what is wrong: nothing, if each
# effect took place exactly once.

require "tempfile"

# Reads the numbers 0, 1, 2 ... in a child, whose status tells whether each came once.
def reader_of_numbers
  reader, writer = IO.pipe
  child = fork do
    trap("TERM", "IGNORE")
    writer.close
    reader.each_line.with_index { |line, index| exit!(1) if line.to_i != index }
    exit!(0)
  end
  reader.close
  [child, writer]
end

child, pipe = reader_of_numbers
file = Tempfile.new("numbers")
stop = false
received = Hash.new(0)
trap("TERM") { stop = true }
%w[USR1 CHLD].each { |signal| trap(signal) { received[signal] += 1 } }
written = sent = spawned = 0
$stdout.sync = true
puts "ready"

until stop
  pipe.syswrite("#{written}\n")
  file.syswrite("#{written}\n")
  written += 1
  Tempfile.create("other") { |other| other.syswrite("x") } if (written % 7).zero?
  if (written % 50).zero? && received["USR1"] == sent # signals of one kind that are pending count once
    sent += 1
    Process.kill(:USR1, Process.pid)
  end
  if (written % 5000).zero?
    spawned += 1
    Process.wait(spawn("true"))
  end
end

# A trap runs some time after its signal.
100.times { received.values_at("CHLD", "USR1") == [spawned, sent] ? break : sleep(0.1) }
wrong = []
wrong << "SIGCHLD #{received['CHLD']} of #{spawned}" unless received["CHLD"] == spawned
pipe.close
wrong << "numbers in the pipe" unless Process.wait2(child).last.success?
numbers = File.readlines(file.path).map(&:to_i)
wrong << "numbers in the file" unless numbers == (0...written).to_a
wrong << "SIGUSR1 #{received['USR1']} of #{sent}" unless received["USR1"] == sent
puts "#{written} #{wrong.join(', ')}"
$stdout.flush
exit!(0)
