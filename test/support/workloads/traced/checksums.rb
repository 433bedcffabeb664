# frozen_string_literal: true

# `checksums.rb [--idle] [LIBRARY]`: threads whose work has a known result: of objects, of floating point numbers and,
# with the test extension at LIBRARY, of values that the processor holds in its vector registers. On SIGTERM, prints the
# number of rounds and of wrong results.

require "digest"

idle = ARGV.delete("--idle")
require ARGV.first if ARGV.any?

OBJECTS = -> { Digest::MD5.hexdigest((0...2000).map { |index| (index * 7919 % 1013).to_s }.join) }
FLOATS = -> { (1..2000).reduce(0.1) { |sum, index| ((sum * 1.5) + (1.0 / index)) % 1.0 } }
VECTORS = -> { Host.vectors_kept?(2_000_000) }
WORK = [OBJECTS, OBJECTS, FLOATS, *(VECTORS if defined?(Host.vectors_kept?))].to_h { |work| [work, work.call] }

# By thread.
rounds = Hash.new(0)
wrong = Hash.new(0)
unless idle
  WORK.each do |work, expected|
    Thread.new do
      loop do
        wrong[work] += 1 unless work.call == expected
        rounds[work] += 1
      end
    end
  end
end
trap("TERM") do
  $stdout.syswrite("#{rounds.values.sum} #{wrong.values.sum}\n")
  exit!(0)
end
$stdout.sync = true
puts "ready"
sleep
