# frozen_string_literal: true

# What the doctor, the overview and a dry run cost the rest of the process: how long each takes and how long it holds
# the GVL, compared with one major GC of the same heap, with 1 and 5 million slots, under both allocators. Then the p99
# of a small Puma's requests with and without the overview being opened once a second, in pairs that take turns.
# SLOTS=1000000 measures only that size; PAIRS=10 sets the number of pairs, SECONDS=6 the length of each half.

SLOTS = ENV.fetch("SLOTS", "1000000,5000000").split(",").map { |text| Integer(text) }
PAIRS = Integer(ENV.fetch("PAIRS", "10"))
SECONDS = Integer(ENV.fetch("SECONDS", "6"))
ROUNDS = 9
# Student's t of a two-sided 95 % interval, by degrees of freedom.
STUDENT = { 1 => 12.706, 2 => 4.303, 4 => 2.776, 9 => 2.262, 14 => 2.145, 19 => 2.093, 29 => 2.045 }.freeze

# Strings and arrays that fill this many slots; some of them hold malloc memory.
def fill(slots)
  kept = []
  kept << "text #{kept.size}" << [kept.size, "y" * (kept.size % 100)] until kept.size * 3 / 2 >= slots
  GC.start
  kept
end

def median(values) = values.sort[values.size / 2]

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

if ARGV.first == "measure"
  require "memscope"
  require "memscope/web"
  require "rack"
  KEPT = fill(Integer(ARGV[1])).freeze
  Memscope.configure { |config| config.authorize = ->(_request) { true } }

  # The longest time, in milliseconds, that another thread waits for the GVL during the block: that thread asks for
  # the GVL every half millisecond.
  def longest_wait
    longest = 0.0
    ticker = Thread.new do
      last = now
      loop do
        sleep 0.0005
        longest = [longest, now - last].max
        last = now
      end
    end
    sleep 0.02
    longest = 0.0
    yield
    sleep 0.005
    ticker.kill.join
    longest * 1000
  end

  # Medians in milliseconds: the wall time, the GVL time that the reading reports (nil for a page, which takes several
  # readings), and the longest wait.
  def measured
    rounds = Array.new(ROUNDS) do
      start = now
      reading = nil
      waited = longest_wait do
        start = now
        reading = yield
      end
      [(now - start - 0.005) * 1000, (reading.cost.gvl_us / 1000.0 if reading.respond_to?(:cost)), waited]
    end
    rounds.transpose.map { |column| median(column) unless column.include?(nil) }
  end

  # Each call has an application of its own, with nothing cached.
  overview = lambda do
    status, = Memscope::Web::Application.new.call(Rack::MockRequest.env_for("/"))
    raise "the overview answers #{status}" unless status == 200
  end
  calls = { "doctor" => -> { Memscope.doctor }, "dry run" => -> { Memscope.purge(dry_run: true) },
            "overview" => overview }
  calls.each_value(&:call)
  collection = median(Array.new(ROUNDS) do
    start = now
    GC.start
    (now - start) * 1000
  end)
  puts format("%<slots>d slots, %<rss>d MiB, under %<allocator>s: a major GC takes %<ms>.1f ms",
              slots: GC.stat(:heap_live_slots), rss: Memscope.rss >> 20, allocator: Memscope.allocator.name,
              ms: collection)
  calls.each do |name, call|
    wall, held, waited = measured(&call)
    shown = held ? format("%.1f", held) : "-"
    puts format("  %<name>-9s %<wall>7.1f ms, GVL by its own account %<held>s ms, longest wait of a thread " \
                "%<waited>.1f ms: %<ratio>.2f × the GC  (goal ≤ 25 ms)",
                name: name, wall: wall, held: shown, waited: waited, ratio: waited / collection)
  end
  heap = Memscope::RubyHeap.bounded
  puts format("  the heap is walked in: %<where>s; a fork stops Ruby for %<pause>s ms, predicted %<predicted>s ms",
              where: heap.walked_in, pause: heap.pause_us&.fdiv(1000) || "-",
              predicted: heap.predicted_pause_us&.fdiv(1000) || "-")
  exit
end

load_path = $LOAD_PATH.grep(/memscope|\Alib|\A#{Regexp.escape(Dir.pwd)}/).map { |directory| "-I#{directory}" }
SLOTS.product([nil, "libjemalloc.so.2"]) do |slots, preload|
  system({ "LD_PRELOAD" => preload }, RbConfig.ruby, "-W0", *load_path, __FILE__, "measure", slots.to_s,
         exception: true)
end

begin
  require "puma"
  require "net/http"
rescue LoadError
  puts "puma is not installed: requests are not measured"
  exit
end

require "tmpdir"

RACKUP = <<~RUBY
  require "json"
  require "memscope/web"
  KEPT = []
  KEPT << "text \#{KEPT.size}" << [KEPT.size, "y" * (KEPT.size % 100)] until KEPT.size * 3 / 2 >= 1_000_000
  GC.start
  Memscope.configure { |config| config.authorize = ->(_request) { true } }
  map("/memscope") { run Memscope::Web }
  run ->(_env) { [200, {}, [JSON.generate(Array.new(400) { |index| { id: index, name: "n" * 20 } })]] }
RUBY

# A Puma with three threads, on a port of its own; yields the port.
def with_puma(load_path)
  Dir.mktmpdir do |directory|
    rackup = File.join(directory, "config.ru")
    File.write(rackup, RACKUP)
    log = File.join(directory, "log.txt")
    pid = Process.spawn(RbConfig.ruby, "-W0", *load_path, Gem.bin_path("puma", "puma"), "-b", "tcp://127.0.0.1:0", "-t",
                        "3:3", rackup, %i[out err] => log)
    sleep 0.1 until (port = File.read(log)[/127\.0\.0\.1:(\d+)/, 1])
    yield Integer(port)
  ensure
    Process.kill(:TERM, pid)
    Process.wait(pid)
  end
end

# The p99, in milliseconds, of the requests that two clients make within SECONDS.
def p99(port)
  clients = Array.new(2) do
    Thread.new do
      stop = now + SECONDS
      Net::HTTP.start("127.0.0.1", port) do |http|
        times = []
        while now < stop
          start = now
          http.get("/")
          times << ((now - start) * 1000)
          sleep 0.002
        end
        times
      end
    end
  end
  times = clients.flat_map(&:value).sort
  times[times.size * 99 / 100]
end

def opening_the_overview(port)
  opener = Thread.new do
    loop do
      Net::HTTP.get(URI("http://127.0.0.1:#{port}/memscope/"))
      sleep 1
    end
  end
  yield
ensure
  opener.kill.join
end

with_puma(load_path) do |port|
  opening_the_overview(port) { p99(port) }
  pairs = Array.new(PAIRS) do |turn|
    sides = [-> { opening_the_overview(port) { p99(port) } }, -> { p99(port) }]
    turn.even? ? sides.map(&:call) : sides.reverse.map(&:call).reverse
  end
  differences = pairs.map { |opened, not_opened| opened - not_opened }
  mean = differences.sum / PAIRS
  deviation = PAIRS > 1 ? Math.sqrt(differences.sum { |value| (value - mean)**2 } / (PAIRS - 1)) : Float::NAN
  student = STUDENT.fetch(STUDENT.keys.reverse.find { |freedom| freedom < PAIRS } || 1)
  half = student * deviation / Math.sqrt(PAIRS)
  puts format("p99 of requests, median: %<opened>.1f ms while the overview is opened once a second, %<not>.1f ms " \
              "while it is not; difference %<mean>+.1f ms, 95 %%: %<low>+.1f to %<high>+.1f ms (goal ≤ +25 ms)",
              opened: median(pairs.map(&:first)), not: median(pairs.map(&:last)), mean: mean, low: mean - half,
              high: mean + half)
end
