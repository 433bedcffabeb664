# frozen_string_literal: true

# What being scraped by Prometheus every second costs, as a share of one core, with a heap as large as an application's:
# without ledgers, with one a minute, and with one at each scrape. CPU time of the whole process, compared with the
# readings alone, and with the prometheus-client gem, which prints as many gauges from memory.

unless ARGV.first == "measure"
  [nil, "libjemalloc.so.2"].each do |preload|
    load_path = $LOAD_PATH.grep(/memscope|\Alib|\A#{Regexp.escape(Dir.pwd)}/).map { |directory| "-I#{directory}" }
    system({ "LD_PRELOAD" => preload }, RbConfig.ruby, "-W0", *load_path, __FILE__, "measure")
  end
  exit
end

require_relative "floor/floor"
require "memscope"

# Four threads make 300,000 strings, and keep a third of them.
KEPT = Array.new(4) do |seed|
  Thread.new do
    random = Random.new(seed)
    Array.new(75_000) { "x" * random.rand(24..2_000) }.select.with_index { |_, index| (index % 3).zero? }
  end
end.map(&:value)
GC.start

# CPU time of `count` calls of the block, in nanoseconds.
def cpu(count, &)
  start = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
  count.times(&)
  Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) - start
end

# Settings under which no ledger is read, whatever the configuration of this process.
SETTINGS = Struct.new(:metrics_ledger_interval_seconds, :metrics_arenas)
settings = SETTINGS.new(nil, false)
Memscope::Metrics.define_singleton_method(:configuration) { settings }

def percent(nanoseconds) = nanoseconds / 1e9 * 100

scrape = ->(count) { cpu(count) { Memscope::Prometheus.text } }
readings = lambda do |count|
  cpu(count) do
    Memscope.snapshot
    Memscope.cgroup
  end
end
where = format("under %s, RSS %.2f GB", Memscope.allocator.name, Memscope.rss / 1e9)

alone = Floor.compare(scrape, readings, count: 20, rounds: 101)
Floor.say("a scrape a second", percent(alone.subject_ns), "% of a core #{where}",
          format("≤ 0.3; its readings alone %.3f", percent(alone.floor_ns)))
Floor.say("a scrape", alone.ratio, "× its readings, snapshot and cgroup, #{where}", "≤ 4")

settings = SETTINGS.new(0, false)
each = Floor.median(Array.new(15) { scrape.call(2) / 2.0 })
minutely = alone.subject_ns + ((each - alone.subject_ns) / 60)
Floor.say("a ledger a minute", percent(minutely), "% of a core #{where}", "≤ 1")
Floor.say("a ledger each", percent(each), "% of a core #{where}", "none: it is asked for")

begin
  require "prometheus/client"
  require "prometheus/client/formats/text"
rescue LoadError
  puts "prometheus-client is not installed: not compared"
  exit
end

settings = SETTINGS.new(nil, false)
registry = Prometheus::Client::Registry.new
Memscope::Metrics.families.each do |family|
  labels = family.samples.first.labels.keys
  gauge = registry.gauge(family.name.to_sym, docstring: family.help, labels: labels)
  family.samples.each { |sample| gauge.set(sample.value, labels: sample.labels) }
end
peer = ->(count) { cpu(count) { Prometheus::Client::Formats::Text.marshal(registry) } }
Floor.say("a scrape", Floor.compare(scrape, peer, count: 10, rounds: 101).ratio,
          "× prometheus-client with as many gauges, which it only prints", "≤ 5")
