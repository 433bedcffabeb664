# frozen_string_literal: true

require_relative "../../test_helper"

# A walk of the heap in a forked child gives the same answer as in the process, leaves the GVL free meanwhile and
# nothing behind; if there is no child, a reason says why.
class HeapWalkTest < MemscopeTest
  parallelize_me!

  # Forces the walk into a child: the budget is 0, and the heap is large enough for a fork to be cheaper.
  WALK = <<~RUBY
    require "json"

    HEAP = [Array.new(150_000) { |index| index.odd? ? "text \#{index}" : [index, "y" * (index % 100)] },
            {}.compare_by_identity.update("key" => 1), ObjectSpace::WeakMap.new, proc { HEAP }, Thread.current]
    ObjectSpace.define_finalizer(HEAP[0][0], proc {})
    GC.start
    Memscope.rss # opens a file that stays open

    def walk(objects: true) = Memscope::RubyHeap.bounded(objects: objects, budget_us: 0)

    # The number of children of this process, of any kind.
    def children = Dir["/proc/self/task/*/children"].sum { |path| File.read(path).split.size }
    def files = Dir.children("/proc/self/fd").size
  RUBY

  BODY = %w[pages slots live_slots free_slots hidden_empty_pages pinned_pages_min pages_by_tenths
            compactable_min_bytes compactable_bytes slot_sizes held_by_objects_bytes old_objects].freeze

  # Two copies of one process, so that neither walk sees the objects that the other has made.
  both_allocators "the child finds what the process finds", in_full: [:jemalloc] do |preload|
    answer = child_json(<<~RUBY, preload: preload, requires: ["memscope_test"])
      #{WALK}
      quick = Array.new(1_000) { Host.sized(1 << 20, 0) }
      GC.start
      pipes = [IO.pipe, IO.pipe]
      first = fork
      second = first && fork
      if second
        pipes.each { |_reading, writing| writing.close }
        puts "[\#{pipes.map { |reading,| reading.read }.join(",")}]"
        [first, second].each { |pid| Process.wait(pid) }
      else
        heap = Memscope::RubyHeap.bounded(objects: true, budget_us: first ? 1_000_000_000 : 0)
        pipes[first ? 1 : 0].last.write(JSON.generate(heap.to_h))
        pipes.flatten.each(&:close)
        exit!(0)
      end
    RUBY
    child, process = answer
    # What each call leaves on the stack may pin a page or two more.
    most = answer.map { |heap| [heap, *heap["slot_sizes"]].map { |size| size.delete("pinned_pages_max") } }.transpose

    assert_equal(%w[child process], [child, process].map { |heap| heap["walked_in"] })
    most.each { |one, other| assert_in_delta one, other, 3 }
    assert_equal process.slice(*BODY), child.slice(*BODY)
    assert_operator child["held_by_objects_bytes"], :>, 1_000 << 20
    assert_operator child["pinned_pages_min"], :>=, 1
    assert_operator child["pause_us"], :>, 0
    assert_operator child["predicted_pause_us"], :>, 0
    assert_nil process["pause_us"]
  end

  # One object takes a second and a half to report its size: the time limit for slow types cannot prevent a single call.
  def test_other_threads_run_meanwhile
    ticks, slow, blocked, honest = child_json(<<~RUBY, requires: ["memscope_test"])
      #{WALK}
      slow = Host.sized(1, 1_500_000_000)
      ticks = 0
      Thread.new { loop { sleep 0.005; ticks += 1 } }
      sleep 0.05
      before = ticks
      heap = walk
      free = ticks - before
      before = ticks
      ledger = Memscope.ledger(objects: true)
      puts JSON.generate([free, heap.cost.to_h, ticks - before, ledger.cost.to_h])
    RUBY

    assert_operator ticks, :>=, 30
    assert_operator slow["wall_us"], :>=, 1_500_000
    assert_operator blocked, :<=, ticks / 3
    assert_operator honest["gvl_us"], :>=, 1_500_000
    assert_operator slow["gvl_us"], :<=, honest["gvl_us"] / 2
  end

  # Each time is the best of five runs, in the thread's CPU time, since other processes run during this test, and is
  # compared with a major GC of the same heap. benchmark/diagnosis.rb has the milliseconds of an idle machine.
  only_in_full def test_what_a_large_heap_costs_under_the_gvl
    collected, child, process, doctor, forecast = child_json(<<~RUBY)
      require "json"
      heap = Array.new(1_200_000) { |index| "text \#{index}" }
      GC.start
      GC.disable
      least = lambda do |&call|
        Array.new(5) do
          start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :microsecond)
          reading = call.call
          spent = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :microsecond) - start
          reading ? [spent, reading.cost.gvl_us].min : spent
        end.min
      end
      puts JSON.generate([least.call { GC.start }, least.call { Memscope::RubyHeap.bounded(objects: true) },
                          least.call { Memscope.ruby_heap }, least.call { Memscope.doctor },
                          least.call { Memscope.purge(dry_run: true) }])
    RUBY

    assert_operator child, :<=, collected / 4
    assert_operator child, :<=, process
    assert_operator doctor, :<=, collected / 2
    assert_operator forecast, :<=, collected / 2
  end

  def test_the_host_sees_nothing_of_the_child
    answer = child_json(<<~RUBY.sub("WALK", WALK))
      WALK
      trapped = 0
      trap(:CHLD) { trapped += 1 }
      waits = Queue.new
      waiter = Thread.new { loop { waits << (Process.wait(-1) rescue nil); sleep 0.001 } }
      pipe = IO.popen(["cat"], "r+")
      cat = pipe.pid
      before = [files, File.foreach("/proc/self/maps").count]
      8.times { walk }
      after = [files, File.foreach("/proc/self/maps").count]
      seen = $?
      pipe.close
      waiter.kill.join
      puts JSON.generate(trapped: trapped, strangers: Array.new(waits.size) { waits.pop }.uniq - [nil, cat],
                         before: before, after: after, children: children, seen: seen)
    RUBY

    assert_operator answer["trapped"], :<=, 1, "only of cat"
    assert_equal [[], 0, nil], answer.values_at("strangers", "children", "seen")
    assert_equal answer["before"].first, answer["after"].first
    assert_in_delta answer["before"].last, answer["after"].last, 20
  end

  # A pipe of the host reaches its end when the host closes it, not only when the child ends.
  def test_the_child_holds_nothing_of_its_host
    held, left = child_json(<<~RUBY, requires: ["memscope_test"])
      #{WALK}
      slow = Host.sized(1, 60_000_000_000)
      reading, writing = IO.pipe
      reader = Thread.new { walk }
      Thread.pass until children == 1
      writing.close
      reading.read
      held = children
      reader.kill.join
      puts JSON.generate([held, children])
    RUBY

    assert_equal 1, held, "the child, for a minute"
    assert_equal 0, left
  end

  both_allocators "an interrupted walk leaves nothing", in_full: [:jemalloc] do |preload|
    answer = child_json(<<~RUBY, preload: preload, requires: ["memscope_test"])
      #{WALK}
      require "timeout"
      slow = Host.sized(1, 60_000_000_000)
      before = files
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      raised = 3.times.map { Timeout.timeout(0.1) { walk } rescue $!.class.name }
      killed = Thread.new { walk }
      Thread.pass until children == 1
      killed.kill.join
      puts JSON.generate(raised: raised.uniq, seconds: Process.clock_gettime(Process::CLOCK_MONOTONIC) - start,
                         files: files - before, children: children)
    RUBY

    assert_equal ["Timeout::Error"], answer["raised"]
    assert_operator answer["seconds"], :<, 60, "it waited for a child"
    assert_equal [0, 0], answer.values_at("files", "children")
  end

  def test_a_child_that_is_killed_is_a_reason
    heap = child_json(<<~RUBY, requires: ["memscope_test"])
      #{WALK}
      slow = Host.sized(1, 8_000_000_000)
      reader = Thread.new { walk }
      Thread.pass until children == 1
      Process.kill(:KILL, Dir["/proc/self/task/*/children"].map { |path| File.read(path) }.join(" ").to_i)
      puts JSON.generate(reader.value.to_h.merge(children: children))
    RUBY

    assert_left_out heap, /the child ended before it answered/
    assert_equal 0, heap["children"]
  end

  # The limit of processes does not apply to root.
  def test_a_fork_that_is_refused_is_a_reason
    heap = child_json(<<~RUBY)
      #{WALK}
      Memscope.doctor
      if Process.uid.zero?
        Process::GID.change_privilege(65_534)
        Process::UID.change_privilege(65_534)
      end
      Process.setrlimit(:NPROC, 0)
      heap = walk
      diagnosis = Memscope.doctor
      puts JSON.generate(heap.to_h)
    RUBY

    assert_left_out heap, /no child could be forked: a limit on the number of processes is reached/
  end

  def test_too_little_room_is_a_reason
    root = "/sys/fs/cgroup/memory"
    skip "no v1 memory hierarchy for root" unless Process.uid.zero? && File.exist?("#{root}/memory.limit_in_bytes")

    heap = child_json(<<~RUBY)
      #{WALK}
      more = Array.new(1_500_000) { |index| "text \#{index}" }
      group = "#{root}/memscope_walk_\#{$$}"
      begin
        Dir.mkdir(group)
        File.write("\#{group}/cgroup.procs", $$.to_s)
        File.write("\#{group}/memory.limit_in_bytes", (8 << 20).to_s)
        puts JSON.generate(walk.to_h)
      ensure
        File.write("#{root}/cgroup.procs", $$.to_s)
        Dir.rmdir(group)
      end
    RUBY

    assert_left_out heap, /a child may need \d+ MiB, but only [0-8] MiB are free/
  end

  def test_beside_a_ractor
    heap = child_json(<<~RUBY, ruby_args: ["-W:no-experimental"])
      #{WALK}
      ractor = Ractor.new { sleep }
      puts JSON.generate(walk.to_h)
      $stdout.flush
      exit!(ractor ? 0 : 1)
    RUBY

    assert_nil heap["held_by_objects_bytes"]
    assert_nil heap["pause_us"]
    assert_match(/Ractors/, heap["reasons"]["held_by_objects_bytes"])
  end

  # A child walks during a sweep if the pages can be listed then; otherwise the sweep is waited for and finished. A
  # reason says which.
  both_allocators "a garbage collection under way", in_full: [:jemalloc] do |preload|
    idle, busy = child_json(<<~RUBY, preload: preload)
      #{WALK}
      sweep = lambda do
        300_000.times { "x" * 60 }
        GC.start(immediate_sweep: false)
        sweep.call unless GC.latest_gc_info(:state) == :sweeping
      end
      sweep.call
      idle = walk
      stop = false
      threads = Array.new(4) { Thread.new { (1_000.times { "y" * 50 }; sleep 0.001) until stop } }
      busy = Array.new(3) { sweep.call; walk }
      stop = true
      puts JSON.generate([idle, busy].flatten.map(&:to_h).then { |first, *rest| [first, rest] })
    RUBY

    said = idle["reasons"].values_at("gc_state", "live_slots").compact.join

    assert_match RUBY_VERSION < "3.4" ? /garbage collector is sweeping/ : /finished a garbage collection/, said
    [idle, *busy].each do |heap|
      assert_equal heap["slots"], heap["live_slots"] + heap["free_slots"]
      assert_operator heap["cost"]["wall_us"], :<, 60_000_000
      assert_equal "child", heap["walked_in"]
      assert_operator heap["held_by_objects_bytes"], :>, 1 << 20
    end
  end

  private

  # Numbers that the page headers contain are present; those that only a walk finds are not.
  def assert_left_out(heap, why)
    assert_equal "headers", heap["walked_in"]
    assert_equal heap["slots"], heap["live_slots"] + heap["free_slots"]
    assert_operator heap["live_slots"], :>, 150_000
    %w[pinned_pages_min pinned_pages_max compactable_min_bytes held_by_objects_bytes].each do |name|
      assert_nil heap[name]
    end
    %w[pinned_pages_max held_by_objects_bytes].each { |name| assert_match why, heap["reasons"][name] }
  end
end
