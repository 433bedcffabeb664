# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"

# Readings by a forked child, or of all objects, in processes that make them hard: each gives an answer or a clear
# reason, and leaves nothing behind.
#
# `rake battery:heap` takes a thousand graphs in a row, and has each allocation run a full collection, not a minor one.
class HeapHostileTest < MemscopeTest
  parallelize_me!

  LONG = ENV.key?("GRAPHS")
  GRAPHS = Integer(ENV.fetch("GRAPHS", "20"))
  ROUNDS = ChildProcess::BRIEF ? 2 : 4

  # The 2,000 orders are to be found by each graph.
  PROLOGUE = <<~RUBY
    require "json"
    require "objspace"
    require "tmpdir"

    class Order; def initialize(number) = @text = "order \#{number}"; end
    module Bus; ORDERS = Array.new(2_000) { |number| Order.new(number) }; end
    Memscope.rss # opens a file that stays open

    def graph(**options) = Memscope.heap_graph(paths_to: Order, top: 1, **options)

    # Of any kind.
    def children = Dir["/proc/self/task/*/children"].sum { |path| (File.read(path) rescue "").split.size } # it has ended
    def files = Dir.children("/proc/self/fd").size
    def answer(**found) = puts(JSON.generate({ children: children }.merge(found)))

    # What a graph found, or why it found nothing.
    def found(graph)
      return graph.reasons.transform_values(&:to_s) unless graph.reachable_count

      [graph.target_count, graph.paths.first.to_s]
    end

    def orders(census) = census.total_count ? census.classes.find { |row| row.name == "Order" }.count : census.reasons

    # The orders in a dump, or why there is none.
    def dumped
      Dir.mktmpdir do |directory|
        Memscope.dump("\#{directory}/heap", format: :objspace)
        Memscope::HeapGraph.read("\#{directory}/heap", paths_to: "Order").target_count
      rescue Memscope::Dump::Failed => error
        Dir.empty?(directory) ? error.message : "a file is left: \#{error.message}"
      end
    end

    # The heap that `large` makes takes longer to walk than the process to fork: whatever may be read by a child is.
    # Each finds a number, or a reason.
    READINGS = {
      graph: -> { graph.then { |one| one.target_count || one.reasons.fetch(:reachable_count) } },
      census: lambda do
        census = Memscope::Census.bounded(budget_us: 0)
        census.walked_in == :child ? orders(census) : census.reasons.fetch(:total_count)
      end,
      ruby_heap: lambda do
        heap = Memscope::RubyHeap.bounded(objects: true, budget_us: 0)
        heap.walked_in == :child ? heap.live_slots : heap.reasons.fetch(:held_by_objects_bytes)
      end,
      survey: -> { Memscope.ledger(garbage: true).then { |one| one.garbage_bytes || one.reasons.fetch(:garbage) } },
      dump: -> { dumped }
    }
    def large = $large = Array.new(400_000) { |number| number.odd? ? "text \#{number}" : [number] }

    # In a thread, which waits for an object that takes so long to tell its size.
    def held_for(seconds)
      $slow = Host.sized(1, (seconds * 1_000_000_000).to_i)
      before = children
      asking = Thread.new { graph }
      sleep 0.002 until children > before
      asking
    end
  RUBY

  FOUND = [2_000, "Bus::ORDERS → Array → Order"].freeze

  def ask(script, **options) = child_json("#{PROLOGUE}\n#{script}", requires: ["memscope_test"], **options)

  def assert_nothing_left(answer) = assert_equal(0, answer["children"], answer)

  def refute_answered(graph, reason)
    assert_kind_of Hash, graph
    assert_match reason, graph["reachable_count"]
  end

  # @yieldparam path [String] of a dump to write
  def with_dump = Dir.mktmpdir { |directory| yield "#{directory}/heap" }

  def orders_in(dump) = Memscope::HeapGraph.read(dump, paths_to: "Order").target_count

  # ---- while Ruby is busy with its heap ----

  def test_under_gc_stress
    skip "a minute and more with some Rubies" if ChildProcess::BRIEF
    with_dump do |dump|
      answer = ask(<<~RUBY, timeout: 300)
        GC.stress = #{LONG ? true : 3} # 3: no major collection, and lazy sweeping
        asked = [graph, graph(in: :process), Memscope.census]
        Memscope.dump(#{dump.dump}, format: :objspace)
        GC.stress = false
        answer(graphs: asked.first(2).map { |one| found(one) }, orders: orders(asked.last))
      RUBY

      assert_equal [FOUND] * 2, answer["graphs"]
      assert_equal [2_000] * 2, [answer["orders"], orders_in(dump)]
      assert_nothing_left answer
    end
  end

  both_allocators "beside threads that allocate, and compaction" do |preload|
    with_dump do |dump|
      answer = ask(<<~RUBY, preload: preload)
        GC.auto_compact = true if #{Memscope::Purge.missing[:compact].nil?}
        stop = false
        busy = Array.new(3) { Thread.new { kept = []; kept = (kept << ["text \#{kept.size}"] * 3).last(500) until stop } }
        asked = Array.new(#{ROUNDS}) { |round| [graph(in: round.odd? ? :process : :fork), Memscope.census] }
        Memscope.dump(#{dump.dump}, format: :objspace)
        GC.compact if GC.respond_to?(:auto_compact) && GC.auto_compact
        stop = true
        busy.each(&:join)
        answer(graphs: asked.map { |one, _| found(one) }.uniq, orders: asked.map { |_, one| orders(one) }.uniq,
               alive: Bus::ORDERS.map(&:class).uniq.size)
      RUBY

      assert_equal [FOUND], answer["graphs"]
      assert_equal [2_000], [*answer["orders"], orders_in(dump)].uniq
      assert_equal 1, answer["alive"]
      assert_nothing_left answer
    end
  end

  # In the marks of an extension: special constants, words that are no objects, one object several times.
  def test_marks_of_what_is_no_object
    answer = ask(<<~RUBY)
      class Held; end
      ODD = Array.new(100) { Host.marks_anything(Held.new) }
      GC.start
      held = -> (place) { found(Memscope.heap_graph(paths_to: Held, top: 1, in: place)) }
      read = READINGS.except(:dump, :graph).transform_values(&:call)
      answer(graphs: %i[fork process].map(&held), dumped: dumped, unreached: read.values.grep(String),
             counted: Memscope.census.classes.find { |row| row.name == "Held" }.count)
    RUBY

    assert_equal [[100, "ODD → Array → Host::MarksAnything → Held"]] * 2, answer["graphs"]
    assert_equal [2_000, [], 100], answer.values_at("dumped", "unreached", "counted")
    assert_nothing_left answer
  end

  def test_beside_a_ractor
    answer = ask(<<~RUBY, ruby_args: ["-W:no-experimental"])
      ractor = Ractor.new { Ractor.receive }
      graphs = [graph, graph(in: :process)].map { |one| found(one) }
      census = orders(Memscope.census)
      answer(graphs: graphs, census: census)
      $stdout.flush
      exit!(ractor ? 0 : 1)
    RUBY

    answer["graphs"].each { |graph| refute_answered(graph, /other Ractors are alive: references/) }
    assert_match(/other Ractors are alive/, answer["census"]["total_count"])
    assert_nothing_left answer
  end

  # ---- a child that ends early ----

  both_allocators "a child that is killed, a slow one, and one that nobody waits for", in_full: [:jemalloc] do |preload|
    answer = ask(<<~RUBY, preload: preload)
      require "timeout"
      before = files
      asking = held_for(8)
      Process.kill(:KILL, Dir["/proc/self/task/*/children"].map { |path| File.read(path) }.join(" ").to_i)
      killed = found(asking.value)
      slow = found(graph(deadline: 0.2))
      raised = begin
        Timeout.timeout(0.2) { graph }
      rescue Timeout::Error => error
        error.class.name
      end
      held_for(8).kill.join
      $slow = nil
      GC.start
      answer(killed: killed, slow: slow, raised: raised, files: files - before)
    RUBY

    refute_answered answer["killed"], /the child ended before it answered/
    refute_answered answer["slow"], /the child took longer than 0\.2 s/
    assert_equal "Timeout::Error", answer["raised"]
    assert_equal 0, answer["files"]
    assert_nothing_left answer
  end

  # A child that answers before it is killed is followed by another one.
  def test_each_child_is_killed
    answer = ask(<<~RUBY)
      large
      before = files
      $slow = Host.sized(1, 8_000_000_000) # all but the survey ask for its size
      done = false
      killing = Thread.new do
        until done
          pid = File.read("/proc/self/task/\#{$$}/children").to_i
          begin
            Process.kill(:KILL, pid) if pid > 0
          rescue Errno::ESRCH
            nil # reaped meanwhile
          end
        end
      end
      killed = READINGS.transform_values { |read| loop { (said = read.call).is_a?(String) and break said } }
      done = true
      killing.join
      $slow = nil
      GC.start
      answer(killed: killed, files: files - before, then: READINGS.transform_values { |read| read.call.class.name })
    RUBY

    answer["killed"].each { |name, said| assert_match(/the child ended before it answered/, said, name) }
    assert_equal ["Integer"], answer["then"].values.uniq
    assert_equal 0, answer["files"]
    assert_nothing_left answer
  end

  # ---- a system that refuses ----

  # The limit of processes does not apply to root.
  def test_no_more_processes
    answer = ask(<<~RUBY)
      graph # loads what another user may not read
      if Process.uid.zero?
        Process::GID.change_privilege(65_534)
        Process::UID.change_privilege(65_534)
      end
      Process.setrlimit(:NPROC, 0)
      before = files
      answer(forked: found(graph), inside: found(graph(in: :process)), files: files - before)
    RUBY

    refute_answered answer["forked"], /no child could be forked: a limit on the number of processes is reached/
    assert_equal FOUND, answer["inside"]
    assert_equal 0, answer["files"]
  end

  { EPERM: "refused by the kernel", ENOMEM: "no memory could be mapped",
    EAGAIN: "a limit on the number of processes is reached" }.each do |error, reason|
    define_method("test_a_fork_that_fails_with_#{error}") do
      answer = ask(<<~RUBY)
        large
        Host.deny_fork!(Errno::#{error}::Errno)
        before = files
        answer(said: READINGS.transform_values(&:call), files: files - before, gc: GC.disable)
      RUBY

      answer["said"].each { |name, said| assert_match(/no child could be forked: .*#{reason}/, said.to_s, name) }
      assert_equal 0, answer["files"]
      refute answer["gc"], "GC is enabled again"
    end
  end

  # Forks are denied, so that an attempt would give another reason.
  def test_a_container_without_room_for_a_child
    root = "/sys/fs/cgroup/memory"
    skip "no v1 memory hierarchy for root" unless Process.uid.zero? && File.exist?("#{root}/memory.limit_in_bytes")

    answer = ask(<<~RUBY)
      $more = Array.new(1_000_000) { |number| "text \#{number}" }
      Host.deny_fork!(Errno::EPERM::Errno)
      own = File.read("/proc/self/cgroup")[/:memory:(.*)/, 1]
      group = "#{root}/memscope_room_\#{$$}"
      begin
        Dir.mkdir(group)
        File.write("\#{group}/memory.limit_in_bytes", (8 << 20).to_s)
        File.write("\#{group}/cgroup.procs", $$.to_s)
        answer(said: READINGS.transform_values(&:call), slots: GC.stat(:heap_available_slots))
      ensure
        File.write("#{root}\#{own}/cgroup.procs", $$.to_s)
        Dir.rmdir(group)
      end
    RUBY
    rooms = answer["said"].transform_values { |said| said[/may need (\d+) MiB, but only [0-8] MiB are free/, 1].to_i }

    assert_operator rooms.values.min, :>, 8, answer["said"]
    assert_operator rooms["dump"], :>, (answer["slots"] * 90) >> 20
    assert_nothing_left answer
  end

  # Containers have 64 MiB of /dev/shm by default: neither memory that a child shares with its parent nor a dump is
  # there.
  def test_a_full_dev_shm
    skip "only root can mount" unless Process.uid.zero? && system("unshare", "--mount", "true", err: File::NULL)

    script = "#{PROLOGUE}\nlarge; File.write('/dev/shm/full', 'x' * 4096)\n" \
             "full = begin; File.write('/dev/shm/more', 'x'); rescue Errno::ENOSPC; true; end\n" \
             "answer(full: full, found: READINGS.transform_values(&:call))"
    mounting = 'mount -t tmpfs -o size=4k tmpfs /dev/shm && exec "$0" "$@"'
    answer = ChildProcess.run_command("unshare", "--mount", "sh", "-c", mounting, *ChildProcess.ruby, "-rmemscope",
                                      "-rmemscope_test", "-e", script).json

    assert answer["full"]
    assert_equal [2_000] * 3, answer["found"].values_at("graph", "census", "dump")
    assert_equal [Integer] * 5, answer["found"].values.map(&:class)
    assert_nothing_left answer
  end

  # With more and more address space: reasons first, then answers, and never an exception.
  both_allocators "without address space" do |preload|
    answer = ask(<<~RUBY, preload: preload)
      graph
      GC.start
      mapped = File.read("/proc/self/statm").split.first.to_i * 4096
      asked = [6, 12, 24, 66, 200, 1_000].map do |mebibytes|
        Process.setrlimit(:AS, mapped + (mebibytes << 20), Process::RLIM_INFINITY)
        [found(graph), orders(Memscope.census)]
      end
      answer(graphs: asked.map(&:first), censuses: asked.map(&:last))
    RUBY
    refused, answered = answer["graphs"].partition { |one| one.is_a?(Hash) }

    assert_equal answer["graphs"], refused + answered, "more room helps"
    assert_operator refused.size, :>=, 2
    refused.each { |graph| refute_answered(graph, /no (scratch )?memory/) }
    assert_equal [FOUND], answered.uniq
    assert_equal 2_000, answer["censuses"].last
    assert_nothing_left answer
  end

  # ---- a host with ways of its own ----

  # A host that reaps all children, as Unicorn's master does, and libraries that run code around a fork, as gRPC does.
  def test_the_host_sees_nothing_of_children
    skip_without "fiddle"
    answer = ask(<<~RUBY)
      require "fiddle"
      around = []
      register = Fiddle::Handle::DEFAULT["__register_atfork"] rescue nil
      before_fork = Fiddle::Closure::BlockCaller.new(Fiddle::TYPE_VOID, []) { around << :atfork }
      register &&= Fiddle::Function.new(register, [Fiddle::TYPE_VOIDP] * 4, Fiddle::TYPE_INT)
      register&.call(before_fork, nil, nil, nil)
      Process.singleton_class.prepend(Module.new { define_method(:_fork) { around << :ruby; super() } })
      trapped = 0
      waited = Queue.new
      reap = ->(flags) { waited << (Process.waitpid2(-1, flags) rescue nil) }
      system("exit 3")
      trap(:CHLD) { trapped += 1; reap.call(Process::WNOHANG) }
      waiting = [0, Process::WNOHANG].map { |flags| Thread.new { loop { reap.call(flags); sleep 0.001 } } }
      large
      around.clear
      read = [*Array.new(4) { found(graph) }.uniq, *READINGS.transform_values(&:call).values.map(&:class)]
      waiting.each { |thread| thread.kill.join }
      answer(read: read, around: around.uniq, trapped: trapped, status: $?.exitstatus,
             waited: Array.new(waited.size) { waited.pop }.compact)
    RUBY

    assert_equal [FOUND, *["Integer"] * 5], answer["read"]
    assert_equal [[], 0, 3, []], answer.values_at("around", "trapped", "status", "waited")
    assert_nothing_left answer
  end

  # The first process becomes the parent of all orphans.
  def test_as_the_first_process
    skip "only root can make a PID namespace" unless Process.uid.zero?
    skip "no PID namespaces here" unless system("unshare", "--pid", "--fork", "--mount-proc", "true", err: File::NULL)

    script = "#{PROLOGUE}\ngraphs = Array.new(3) { found(graph) }.uniq; answer(pid: $$, graphs: graphs)"
    answer = ChildProcess.run_command("unshare", "--pid", "--fork", "--mount-proc", *ChildProcess.ruby,
                                      "-rmemscope", "-rmemscope_test", "-e", script).json

    assert_equal [1, [FOUND]], answer.values_at("pid", "graphs")
    assert_nothing_left answer
  end

  # A response after which the connection is closed, a pipe to a command, and a lock end when the host lets go of them.
  both_allocators "what the host closes ends while the child is held", in_full: [:jemalloc] do |preload|
    answer = ask(<<~RUBY, preload: preload)
      require "socket"
      require "tempfile"
      server = TCPServer.new("127.0.0.1", 0)
      client = TCPSocket.new("127.0.0.1", server.addr[1])
      connection = server.accept
      command = IO.popen(["cat"], "r+")
      locked = Tempfile.create("lock")
      locked.flock(File::LOCK_EX)
      asking = held_for(60)
      connection.write("HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\nbody")
      connection.close
      body = client.read.lines.last
      command.write("through cat")
      command.close_write
      through = command.read
      locked.close
      free = File.open(locked.path) { |file| file.flock(File::LOCK_EX | File::LOCK_NB) }
      meanwhile = children
      asking.kill.join
      command.close
      File.unlink(locked.path)
      answer(read: [body, through, free], meanwhile: meanwhile)
    RUBY

    assert_equal ["body", "through cat", 0], answer["read"]
    assert_equal 2, answer["meanwhile"], "cat and the child, which is held for a minute"
    assert_nothing_left answer
  end

  # ---- many ----

  both_allocators "many in a row leak nothing", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    answer = ask(<<~RUBY, preload: preload, timeout: 60 + GRAPHS)
      def left
        GC.start
        [files, File.foreach("/proc/self/maps").count, Memscope.process_memory.uss_bytes]
      end
      3.times { graph; Memscope.census; left }
      before = left
      #{GRAPHS}.times { graph; Memscope.census }
      answer(before: before, after: left)
    RUBY
    files, maps, bytes = answer["after"].zip(answer["before"]).map { |after, before| after - before }

    assert_equal 0, files
    assert_operator maps, :<=, 20
    assert_operator bytes, :<=, 4 << 20
    assert_nothing_left answer
  end
end
