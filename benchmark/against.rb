# frozen_string_literal: true

# Compares this tree with another one, such as the previous release: how much longer does each call take here? In each
# of PAIRS rounds, fresh processes take turns: this tree, the other, this tree again. Each pair is of two runs in a row.
#
#   bundle exec ruby benchmark/against.rb ../before [PAIRS]
#
# Both trees must be compiled. Times are CPU time. For each call, it prints the mean of the paired differences with its
# 95 % interval, and the same for this tree against itself. "same": the interval includes 0 and ends below 5 %. "not
# measured": this tree's difference from itself may be 5 % or more.

require "json"
require "rbconfig"

CALLS = {
  "rss" => proc { Memscope.rss },
  "snapshot" => proc { Memscope.snapshot },
  "allocator" => proc { Memscope.allocator },
  "ledger" => proc { Memscope.ledger },
  "ledger(deep: true)" => proc { Memscope.ledger(deep: true) },
  "ledger(objects: true)" => proc { Memscope.ledger(objects: true) },
  "arenas" => proc { Memscope.arenas },
  "ruby_heap" => proc { Memscope.ruby_heap },
  "cgroup" => proc { Memscope.cgroup },
  "doctor" => proc { Memscope.doctor },
  "purge(dry_run: true)" => proc { Memscope.purge(dry_run: true) },
  "Prometheus.text" => proc { Memscope::Prometheus.text },
  "ledger.to_s" => proc { LEDGER.to_s },
  "ledger.to_json" => proc { LEDGER.to_json }
}.freeze

# Student's t of a two-sided 95 % interval, by degrees of freedom.
STUDENT = { 9 => 2.262, 11 => 2.201, 14 => 2.145, 19 => 2.093, 29 => 2.045 }.freeze

BATCH_NS = 4_000_000

def nanoseconds(calls, call)
  start = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
  calls.times(&call)
  (Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) - start).fdiv(calls)
end

# Nanoseconds of one call in the fastest of 15 batches: leaves out what can only add time (a cold cache, an interrupt).
def fastest(call)
  calls = (BATCH_NS / Array.new(3) { nanoseconds(1, call) }.min).ceil
  Array.new(15) { nanoseconds(calls, call) }.min
end

if ARGV.first == "measure"
  require "memscope"
  random = Random.new(1)
  KEPT = [Array.new(300_000) { Object.new }, Array.new(60_000) { "x" * random.rand(24..1_600) }].freeze
  GC.start
  GC.disable
  LEDGER = Memscope.ledger
  puts JSON.generate(CALLS.transform_values { |call| fastest(call) })
  exit
end

def measure(tree, preload)
  command = [RbConfig.ruby, "-W0", "-I#{File.join(tree, 'lib')}", __FILE__, "measure"]
  JSON.parse(IO.popen({ "LD_PRELOAD" => preload, "RUBYLIB" => nil }, command, &:read))
end

# Percent by which the first of each pair takes longer: mean, and half of the 95 % interval.
def difference(pairs)
  logarithms = pairs.map { |ours, theirs| Math.log(ours.fdiv(theirs)) }
  mean = logarithms.sum / logarithms.size
  deviation = Math.sqrt(logarithms.sum { |value| (value - mean)**2 } / (logarithms.size - 1))
  student = STUDENT.fetch(STUDENT.keys.reverse.find { |freedom| freedom < logarithms.size } || 9)
  [100 * mean, 100 * student * deviation / Math.sqrt(logarithms.size)]
end

def verdict(mean, half, own_mean, own_half)
  return "not measured" if own_mean.abs + own_half >= 5
  return "same" if mean.abs <= half && mean + half < 5

  mean.positive? ? "slower" : "faster"
end

here = File.expand_path("..", __dir__)
other = File.expand_path(ARGV.fetch(0))
pairs = Integer(ARGV.fetch(1, "12"))
[nil, "libjemalloc.so.2"].each do |preload|
  rounds = Array.new(pairs) { [here, other, here].map { |tree| measure(tree, preload) } }
  puts "under #{preload || 'glibc'}, #{pairs} pairs:"
  CALLS.each_key do |call|
    first, others, second = rounds.map { |round| round.map { |times| times.fetch(call) } }.transpose
    mean, half = difference(second.zip(others))
    own_mean, own_half = difference(second.zip(first))
    puts format("  %<call>-22s %<mean>+6.1f %% ± %<half>4.1f   itself %<own>+6.1f %% ± %<own_half>4.1f   %<verdict>s",
                call: call, mean: mean, half: half, own: own_mean, own_half: own_half,
                verdict: verdict(mean, half, own_mean, own_half))
  end
end
