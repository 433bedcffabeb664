# frozen_string_literal: true

# Memscope.heap_graph of one heap, from the call to the answer, against Ruby's tools for the same questions: a file by
# ObjectSpace.dump_all, read by heapy, by harb (in C++, the only one with dominators) and by sheap (references only).
# Then HeapGraph.read of the same file against these readers, and how fast the file becomes a graph. Last, how long a
# graph stops Ruby, against one bare fork of this process plus the end of a garbage collection that is under way. All in
# one run, in turns. OBJECTS=5000000, GIGABYTES=1, ROUNDS=9, READERS=1 (how often a file is made and read). The peers
# are installed into PEERS=tmp/peers; harb is no gem: HARB=path is its program. A peer that cannot be installed is "not
# run".
#
# The child has a low priority, so on a busy machine only the ratios of CPU time are of use.

require_relative "floor/floor"
require "fiddle"
require "memscope"
require "objspace"

OBJECTS = Integer(ENV.fetch("OBJECTS", "5000000"))
ROUNDS = Integer(ENV.fetch("ROUNDS", "9"))
READERS = Integer(ENV.fetch("READERS", "1"))
GIGABYTES = Float(ENV.fetch("GIGABYTES", "1"))
FORK = Floor.function("fork", "floor_fork", [], Fiddle::TYPE_LONG_LONG)
READ_DUMP = Floor.function("dump_reader", "floor_read_dump", [Fiddle::TYPE_VOIDP], Fiddle::TYPE_LONG_LONG,
                           rooms: %w[base graph dump])
FASTER = { "heapy" => 25, "harb" => 8 }.freeze # factor: a graph, against dump_all plus the peer
READS_FASTER = { "heapy" => 20 }.freeze        # factor: a dump's graph, against the peer's reading of the dump
GIGABYTES_A_SECOND = 1
PAUSE = 1.2 # times the floor
CHILD_BYTES = 80 # per object
# On an idle machine, at 1 GB and two million objects.
PAUSE_MS = 25
PEERS_HOME = File.expand_path(ENV.fetch("PEERS", "tmp/peers"))
PEERS = {
  "heapy" => ["#{PEERS_HOME}/bin/heapy", "read", "%s"],
  "harb" => ["sh", "-c", 'echo quit | "$0" "$1"', ENV.fetch("HARB", nil), "%s"],
  "sheap" => [RbConfig.ruby, "-rsheap", "-e", "Sheap::Heap.new(ARGV.first).inverse_references", "%s"]
}.freeze

Item = Struct.new(:number, :text, :tags)

# Allocates memory that no object holds, up to a resident size of GIGABYTES: a larger process takes longer to fork.
def fill_up
  bytes = (GIGABYTES * 1e9).to_i - Memscope.rss
  return unless bytes.positive?

  memset = Fiddle::Function.new(Fiddle::Handle::DEFAULT["memset"],
                                [Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT, Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
  memset.call(Fiddle.malloc(bytes), 1, bytes)
end

def make(objects)
  Array.new(objects / 8) do |number|
    [Item.new(number, "text #{number}", { number => "tag #{number}" }), ["x" * 200], number * 1.5]
  end
end

# Runs a command without this process's Bundler.
def outside(*command)
  environment = %w[RUBYOPT RUBYLIB BUNDLE_GEMFILE].to_h { |name| [name, nil] }
  system(environment.merge("GEM_HOME" => PEERS_HOME, "GEM_PATH" => PEERS_HOME), *command, out: File::NULL)
end

def installed?(peer)
  return File.executable?(ENV.fetch("HARB", "")) if peer == "harb"

  outside("gem", "list", "--exact", "--installed", peer) || outside("gem", "install", "--no-document", peer)
end

# The CPU time of this process and of all children that it has waited for, in seconds.
def cpu_seconds = Process.times.sum

# Seconds of wall time and of CPU time.
def spent(&)
  cpu = cpu_seconds
  [Floor.time(&) / 1e9, cpu_seconds - cpu]
end

# How long it takes to write a file of all objects; its size; how long each peer and HeapGraph.read take to read it; and
# the seconds of CPU time to make a graph of it.
def read_by_others(peers)
  Dir.mktmpdir do |directory|
    path = File.join(directory, "heap.json")
    dump = spent { File.open(path, "w") { |file| ObjectSpace.dump_all(output: file) } }
    reads = peers.to_h do |peer|
      command = PEERS.fetch(peer).map { |part| part == "%s" ? path : part }
      [peer, spent { outside(*command) || abort("#{peer} failed") }]
    end
    own = spent { Memscope::HeapGraph.read(path).reachable_count || abort("not read") }
    [dump, File.size(path), reads, own, READ_DUMP.call(path) / 1e9]
  end
end

# The milliseconds that GC.disable takes: it finishes a collection that has marked, but not swept.
def finish_ms
  GC.start(immediate_sweep: false)
  spent { GC.disable }.first * 1000
ensure
  GC.enable
end

# The milliseconds that a bare fork takes, and those that the end of a collection takes. The fork follows a collection,
# as the graph's does: write-protecting the pages that were written since the last fork is up to a quarter of its work.
def floor_ms
  finish = finish_ms
  [FORK.call / 1e6, finish]
end

# A graph during a collection, and what it took; then, in milliseconds: how long Ruby was stopped, how long a bare fork
# takes, and how long the end of such a collection takes.
def graph
  before = floor_ms
  GC.start(immediate_sweep: false)
  found = nil
  took = spent { found = Memscope.heap_graph }
  found.reachable_count || abort("no answer: #{found.reasons}")
  [found, took, found.cost.gvl_us / 1000.0, *before.zip(floor_ms).map { |pair| pair.sum / 2 }]
end

def median_of(rows) = rows.transpose.map { |column| Floor.median(column) }

def say_peers(own, files, peers)
  dump = median_of(files.map(&:first))
  puts format("dump_all %<dump>.2f s, %<size>.0f MB", dump: dump.first, size: files.first[1] / 1e6)
  PEERS.keys.map do |peer|
    next puts("#{peer}: not run (not to be had)") unless peers.include?(peer)

    totals = reads_of(files, peer).zip(dump).map(&:sum)
    fast_enough?("dump_all + #{peer}", totals, own, "a graph", FASTER[peer])
  end
end

def reads_of(files, peer) = median_of(files.map { |_, _, reads| reads.fetch(peer) })

# Prints how many times longer `theirs` takes. Returns whether that reaches the goal.
def fast_enough?(what, theirs, ours, of, goal)
  ratio, cpu_ratio = theirs.zip(ours).map { |one, other| one / other }
  Floor.say(what, ratio, "times #{of}", goal || "none")
  Floor.say("", cpu_ratio, "times its CPU time", goal || "none")
  goal.nil? || ratio >= goal
end

# HeapGraph.read also finds paths and dominators; of the peers, only harb does. So peers are compared with the graph
# alone too.
def say_reading(files, peers)
  own = median_of(files.map { |row| row[3] })
  graph = Floor.median(files.map(&:last))
  speed = files[0][1] / graph / 1e9
  puts format("HeapGraph.read %<wall>.2f s, %<cpu>.2f s of CPU time", wall: own.first, cpu: own.last)
  Floor.say("a dump's graph", speed, "GB a second of CPU time", GIGABYTES_A_SECOND)
  [speed >= GIGABYTES_A_SECOND,
   *peers.map do |peer|
     fast_enough?("#{peer} read", reads_of(files, peer), own, "HeapGraph.read", nil)
     ratio = reads_of(files, peer).last / graph
     Floor.say("", ratio, "times the CPU time of a dump's graph", READS_FASTER[peer] || "none")
     READS_FASTER[peer].nil? || ratio >= READS_FASTER[peer]
   end]
end

kept = make(OBJECTS)
fill_up
GC.start
peers = PEERS.keys.select { |peer| installed?(peer) }
graph # warm-up: the first one reads what memscope needs to know of this Ruby
graphs = []
files = []
[ROUNDS, READERS].max.times do |round|
  graphs << graph if round < ROUNDS
  files << read_by_others(peers) if round < READERS
end
found = graphs.last.first
objects = found.reachable_count + found.garbage_count
own = median_of(graphs.map { |row| row[1] })
puts format("%<objects>d objects, RSS %<rss>.2f GB: heap_graph %<wall>.3f s, %<each>.0f ns of CPU time an object",
            objects: objects, rss: Memscope.rss / 1e9, wall: own.first, each: own.last * 1e9 / objects)
passed = [*say_peers(own, files, peers), *say_reading(files, peers)]
pause, bare, finish = median_of(graphs.map { |row| row.last(3) })
puts format("paused %<pause>.1f ms; a bare fork %<bare>.1f ms, the end of a collection %<finish>.1f ms",
            pause: pause, bare: bare, finish: finish)
ratio = Floor.median(graphs.map { |row| row[2] / row.last(2).sum })
Floor.say("pause", ratio, "times those", PAUSE)
Floor.say("pause", pause - finish, "ms without the collection", "#{PAUSE_MS} at 1 GB, 2 M objects, idle")
Floor.say("child", found.child_bytes.to_f / objects, "B an object", CHILD_BYTES)
exit passed.none?(false) && ratio <= PAUSE && found.child_bytes <= CHILD_BYTES * objects && kept.size.positive?
