# frozen_string_literal: true

# What the black box costs a process: CPU time of the sampling thread with and without it, as a share of a core; private
# memory of a forked worker with and without it; and the time that noting a request adds.

require "json"
require "tmpdir"
require_relative "floor/floor"
require "memscope"

BLACK_BOX = Memscope::BlackBox
RUNTIME = Memscope.const_get(:Runtime)
NATIVE = Memscope.const_get(:Native)

def in_child
  reader, writer = IO.pipe
  pid = fork { writer.puts(JSON.generate(yield)).then { exit!(0) } }
  writer.close
  JSON.parse(reader.read).tap { Process.wait(pid) }
end

# The CPU seconds of this thread for one of `count` calls.
def cpu(count, &)
  since = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  count.times(&)
  (Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - since) / count
end

def with_box
  Dir.mktmpdir do |directory|
    Memscope.configure { |c| c.black_box = "#{directory}/boxes" }
    Memscope::Workers.watch
    sleep 0.01 until BLACK_BOX.status&.fetch(:written_at, nil)
    RUNTIME.current.sampling.cancel(RUNTIME.current.black_box)
    yield RUNTIME.current.black_box
  end
end

# A sample of the history, alone and with a box, which takes a record of its own at the same interval, and looks at the
# memory that is left each second.
alone = in_child do
  Memscope::History.start
  sleep 0.01 until Memscope.history.started_at
  cpu(2000) { RUNTIME.current.history.step }
end
sampled, recorded, looked = in_child do
  with_box do |box|
    [cpu(2000) { RUNTIME.current.history.step }, cpu(500) { box.send(:record, Float::INFINITY) },
     cpu(2000) { box.instance_variable_get(:@approach).look(0.0) }]
  end
end
share = ((sampled - alone + recorded) / 10) + looked
{ "a sample alone" => alone, "with a box" => sampled, "a record" => recorded, "a look" => looked }.each do |what, cpu|
  puts "#{what.ljust(17)} #{(cpu * 1e6).round.to_s.rjust(7)} µs of CPU"
end
Floor.say("the black box", share * 100, "% of a core", "≤ 0.05")

# Private bytes of a forked worker, which has loaded all that it needs before the fork, and whose master has a box too,
# as Puma's has.
Memscope.eager_load!
settled = lambda do |box|
  Memscope.configure { |c| c.black_box = box && "#{Dir.mktmpdir}/boxes" }
  Memscope::Workers.watch
  sleep 12
end
uss = lambda do |box|
  in_child do
    settled.call(box)
    in_child do
      settled.call(box)
      GC.start # as in any worker that works: it writes to pages that both would share otherwise
      Memscope.process_memory.uss_bytes
    end
  end
end
pairs = Array.new(5) { uss.call(true) - uss.call(false) }
Floor.say("the black box", Floor.median(pairs) / 1_048_576.0, "MiB of USS in a forked worker", "≤ 0.4")

# A request that does nothing, with and without its note.
environment = { "PATH_INFO" => "/" }
noted = ->(_) { BLACK_BOX::Runs.during(environment) { nil } }
plain = ->(_) {}
times = Array.new(21) { cpu(100_000, &noted) - cpu(100_000, &plain) }
Floor.say("noting a request", Floor.median(times) * 1e6, "µs", "≤ 1")
