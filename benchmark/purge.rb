# frozen_string_literal: true

# What a lever every 100 ms costs eight threads that allocate without the GVL, in a fragmented process, under both
# allocators: the loss of throughput, and the longest wait in a call of malloc. Windows with and without levers take
# turns. The last line is Memscope.purge, which also reads a ledger before and after each lever.
#
# Before that: for how long gc and compact stop Ruby and what was predicted, in heaps of several shapes; what the
# allocator's lever was predicted to return, and returned; and a purge that names no levers in a forked worker: the
# longest gap of a thread that ticks each millisecond, and private memory, beside a child that does not purge.

load_path = $LOAD_PATH.grep(/memscope|\Alib|\A#{Regexp.escape(Dir.pwd)}/).map { |directory| "-I#{directory}" }
unless ARGV.any?
  run = lambda do |preload, *arguments|
    system({ "LD_PRELOAD" => preload }, RbConfig.ruby, "-W0", *load_path, __FILE__, *arguments, exception: true)
  end
  %w[strings records random].product(%w[40000 200000 1000000]).each { |heap| run.call(nil, *heap) }
  [nil, "libjemalloc.so.2"].product(%w[worker measure]).each { |preload, part| run.call(preload, part) }
  exit
end

SHAPES = {
  "strings" => ->(count) { Array.new(count) { "x" * 40 } },
  "records" => ->(count) { Array.new(count / 5) { |id| { id: id.to_s, "tags" => [id.to_s, id.to_f], none: nil } } },
  # Each object refers to two others anywhere in the heap.
  "random" => lambda do |count|
    random = Random.new(1)
    objects = Array.new(count / 2) { [] }
    objects.each { |one| one.push(objects.sample(random: random), objects.sample(random: random), "s" * 30) }
    objects.shuffle(random: random)
  end
}.freeze

# CPU time by default: a collection runs in the thread that asks for it, and other programs do not count.
def milliseconds(clock = Process::CLOCK_THREAD_CPUTIME_ID)
  start = Process.clock_gettime(clock)
  yield
  1000 * (Process.clock_gettime(clock) - start)
end

if (shape = SHAPES[ARGV.first])
  require "memscope"
  kept = shape.call(Integer(ARGV.last))
  2.times { GC.start }
  predicted = Memscope.purge(dry_run: true).levers.to_h { |lever| [lever.name, lever.predicted_pause_ms] }
  live = GC.stat(:heap_live_slots)
  took = Array.new(5) { milliseconds { GC.start } }.sort[2]
  text = format("gc %.0f ms, predicted %.0f (%.0f ns an object)", took, predicted[:gc], took * 1e6 / live)
  if predicted[:compact]
    took = milliseconds { Memscope::Purge::Compaction.run }
    text += format(", compact %.0f ms, predicted %.0f", took, predicted[:compact])
  end
  puts format("  %-8s %9d objects: %s", ARGV.first, live, kept && text)
  exit
end

if ARGV.first == "worker"
  require "memscope"
  KEPT = Array.new(150_000) { |id| { id: id.to_s, note: "x" * (id % 900), "tags" => [id.to_s, id.to_f] } }
  Memscope.purge(dry_run: true)
  # The longest gap, private MiB before and after, and what the block returned.
  look = lambda do |&work|
    reader, writer = IO.pipe
    fork do
      dropped = Array.new(150_000) { |id| "y" * (id % 1_500) }
      dropped.select!.with_index { |_, index| (index % 50).zero? }
      GC.start
      Memscope.purge(:gc, dry_run: true)
      longest = 0.0
      before = Memscope.process_memory.uss_bytes
      ticker = Thread.new { loop { longest = [longest, milliseconds(Process::CLOCK_MONOTONIC) { sleep(0.001) }].max } }
      sleep 0.2
      longest = 0.0
      result = work.call
      ticker.kill.join
      writer.puts [longest, before / 1e6, Memscope.process_memory.uss_bytes / 1e6, *result].join(" ")
      exit!(0)
    end
    writer.close
    reader.read.split.map(&:to_f).tap { Process.wait }
  end
  purge = lambda do |*levers|
    result = Memscope.purge(*levers)
    lever = result.levers.find { |one| one.name == Memscope::Purge.allocators_lever }
    lever ? [lever.predicted_bytes / 1e6, lever.returned_bytes / 1e6] : []
  end
  { "no purge" => -> { sleep 0.3 }, "purge" => purge, "purge gc" => -> { purge.call(:gc) } }.each do |name, work|
    gap, before, after, predicted, returned = look.call(&work)
    text = format("longest gap %.0f ms, private memory %.1f MB before, %.1f after", gap, before, after)
    text += format("; lever predicted %.1f, returned %.1f", predicted, returned) if returned
    puts format("  forked worker under %s, %-8s %s", Memscope.allocator.name, name, text)
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
LEVERS.each { |lever| compare(lever.name, &PULLS.fetch(lever) { -> { NATIVE.run_lever(lever) } }) }
turn = LEVERS.cycle
compare("Memscope.purge, each") { Memscope.purge(turn.next) }
load_function("stop", [], Fiddle::TYPE_VOID).call
