# frozen_string_literal: true

# What a measurement costs while the block runs, compared with memory_profiler and ObjectSpace.trace_object_allocations:
# CPU time of the same block, as a multiple of its time alone, and what each tool adds to one allocation. Each tool has
# a process, which runs the block alone and then measured, in turns, ROUNDS times. The garbage collections and ledgers
# around the block are not counted (`cost` says what they took), nor are the tables that memory_profiler makes
# afterwards.
#
# - allocates only: two objects per iteration, which are garbage at once.
# - strings and hashes: as an application does.
# - keeps: objects that stay, so that each collection looks at all of them.
#
# ALLOCATIONS=1000000 (iterations of the first block), ROUNDS=5.

require "open3"
require "rbconfig"

ALLOCATIONS = Integer(ENV.fetch("ALLOCATIONS", "1000000"))
ROUNDS = Integer(ENV.fetch("ROUNDS", "5"))

BLOCKS = {
  "allocates only" => "#{ALLOCATIONS}.times { |number| [\"x\#{number}\"] }",
  "strings and hashes" => <<~'RUBY'.sub("COUNT", (ALLOCATIONS / 10).to_s),
    COUNT.times do |number|
      pairs = { "id" => number.to_s, "name" => "order", "price" => "100" }
      pairs.map { |key, value| "#{key}=#{value}" }.join("&").split("&").to_h { |pair| pair.split("=") }
    end
  RUBY
  "keeps" => "kept = Array.new(#{ALLOCATIONS / 4}) { |number| [\"x\#{number}\"] }; nil"
}.freeze

# Each defines `within`, which yields while the tool runs, and returns how many objects the tool has counted.
TOOLS = {
  "memscope" => 'require "memscope"; def within(&) = Memscope.measure(&).allocated_objects',
  "memory_profiler" => <<~RUBY,
    require "memory_profiler"
    def within
      MemoryProfiler.start
      yield
      MemoryProfiler.stop.total_allocated
    end
  RUBY
  "trace_object_allocations" => <<~RUBY
    require "objspace"
    def within(&) = (ObjectSpace.trace_object_allocations(&); nil)
  RUBY
}.freeze

PROGRAM = <<~RUBY
  def cpu_seconds = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  def work
    BLOCK
  end
  # memory_profiler counts objects of one generation, up to the next collection.
  def timed
    start = cpu_seconds
    before = GC.stat(:total_allocated_objects)
    work
    @allocated = GC.stat(:total_allocated_objects) - before
    cpu_seconds - start
  end
  alone, measured, counted = [], [], nil
  timed
  ROUNDS.times do
    GC.start
    alone << timed
    GC.start
    counted = within { measured << timed }
  end
  puts [alone.min, measured.min, @allocated, counted].inspect
RUBY

def run(tool, block)
  program = "#{TOOLS.fetch(tool)}\n#{PROGRAM.sub('BLOCK') { block }.sub('ROUNDS', ROUNDS.to_s)}"
  out, status = Open3.capture2(RbConfig.ruby, "-W0", "-I#{File.expand_path('../lib', __dir__)}", "-e", program)
  abort "#{tool} failed" unless status.success?
  out.lines.last.delete("[]").split(",").map { |number| Float(number, exception: false) }
end

failed = BLOCKS.flat_map do |name, block|
  ratios = TOOLS.keys.to_h do |tool|
    alone, measured, allocated, counted = run(tool, block)
    puts "#{name.ljust(20)} #{tool.ljust(26)} #{(measured / alone).round(2)} times as long, " \
         "#{((measured - alone) * 1e9 / allocated).round} ns more an allocation" \
         "#{"; counts #{counted.to_i} of #{allocated.to_i} objects" if counted}"
    [tool, measured / alone]
  end
  ratios["memscope"] <= ratios["memory_profiler"] ? [] : [name]
end
puts "slower than memory_profiler: #{failed.join(', ')}" unless failed.empty?
exit failed.empty?
