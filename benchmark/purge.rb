# frozen_string_literal: true

# What a lever every 100 ms costs eight threads that allocate without the GVL, in a fragmented process, under both
# allocators: the loss of throughput, and the longest wait in a call of malloc. Windows with and without levers take
# turns. The last line is Memscope.purge, which also reads a ledger before and after each lever.

unless ARGV.first == "measure"
  load_path = $LOAD_PATH.grep(/memscope|\Alib|\A#{Regexp.escape(Dir.pwd)}/).map { |directory| "-I#{directory}" }
  [nil, "libjemalloc.so.2"].each do |preload|
    system({ "LD_PRELOAD" => preload }, RbConfig.ruby, "-W0", *load_path, __FILE__, "measure", exception: true)
  end
  exit
end

require "fiddle"
require_relative "floor/floor"
require "memscope"

WINDOW = 1.0 # seconds
INTERVAL = 0.1
ROUNDS = Integer(ENV.fetch("ROUNDS", "5"))
NATIVE = Memscope.const_get(:Native)
LEVERS = Memscope::Purge.missing.select { |_lever, missing| missing.nil? }.keys
PULLS = { gc: -> { GC.start }, compact: -> { GC.compact } }.freeze

KEPT = Array.new(400_000) { |index| "x" * (20 + ((index * 7919) % 1_000)) }
KEPT.select!.with_index { |_, index| (index % 50).zero? }
GC.start

def load_function(name, arguments = [], result = Fiddle::TYPE_LONG_LONG)
  Floor.function("load", "floor_load_#{name}", arguments, result)
end

START = load_function("start", [Fiddle::TYPE_INT], Fiddle::TYPE_INT)
DONE = load_function("rounds")
LONGEST = load_function("longest")

# One window: blocks replaced a second, and the longest wait in milliseconds.
def window
  [DONE, LONGEST].each(&:call)
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  due = start
  while (now = Process.clock_gettime(Process::CLOCK_MONOTONIC)) < start + WINDOW
    yield
    due += INTERVAL
    sleep([due - now, 0.001].max)
  end
  [DONE.call / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - start), LONGEST.call / 1e6]
end

def compare(name, &lever)
  without, with = Array.new(ROUNDS) { [window { nil }, window(&lever)] }.transpose
  losses = without.zip(with).map { |(before, _), (after, _)| 100 * (1 - (after / before)) }
  puts format("  %<name>-22s throughput %<loss>+5.1f %%   longest wait %<wait>6.1f ms (without %<idle>.1f)",
              name: name, loss: -Floor.median(losses), wait: with.map(&:last).max, idle: without.map(&:last).max)
end

START.call(8)
puts format("8 threads under %<allocator>s, a lever every %<ms>d ms, RSS %<rss>.2f GB",
            allocator: Memscope.allocator.name, ms: INTERVAL * 1000, rss: Memscope.rss / 1e9)
LEVERS.each { |lever| compare(lever.name, &PULLS.fetch(lever) { -> { NATIVE.run_lever(lever, nil) } }) }
turn = LEVERS.cycle
compare("Memscope.purge, each") { Memscope.purge(turn.next) }
load_function("stop", [], Fiddle::TYPE_VOID).call
