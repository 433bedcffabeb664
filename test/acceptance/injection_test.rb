# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bystander"
require_relative "../support/ledger_tree"
require "memscope/remote/copy"

# Truth by injection: a child adds a known, touched amount of memory of one owner, and exactly that row rises.
class InjectionTest < MemscopeTest
  parallelize_me!

  MIB = 1024 * 1024
  INJECTED = 32 * MIB
  RADIX_TREE_NODE = 2 * MIB
  # Rows in which jemalloc counts its own metadata, and the part of it that was never touched.
  BOOKKEEPING = %w[malloc/metadata malloc/not_resident].freeze
  # Under Debian's Ruby 3.3 the main stack's first 8 MiB are resident from boot.
  RESERVED_STACK = 8 * MIB

  # The GC stays off between the readings: what it freed meanwhile would distort the difference.
  SCRIPT = <<~'RUBY'
    require "json"
    require "memscope_test"
    %<setup>s
    3.times { Memscope.ledger }
    GC.start
    GC.disable
    before = Memscope.ledger
    injected = begin
      %<injection>s
    end
    after = Memscope.ledger
    puts %%({"injected":#{JSON.generate(injected)},"before":#{before.to_json},"after":#{after.to_json}})
  RUBY

  both_allocators "Ruby slots" do |preload|
    change = inject(preload, <<~RUBY)
      slot_size = GC::INTERNAL_CONSTANTS.values_at(:BASE_SLOT_SIZE, :RVALUE_SIZE).compact.first
      $objects = nil
      900_000.times { $objects = [$objects] }
      900_000 * slot_size
    RUBY

    assert_rise(change, "ruby_heap/live_slots")
  end

  # Each Ractor says that it runs: since Ruby 3.3 it takes its stack from malloc.
  RACTORS = <<~RUBY
    $VERBOSE = nil
    running, told = IO.pipe
    ractors = Array.new(2) do
      Ractor.new(told.fileno) { |told| IO.for_fd(told, "w", autoclose: false).syswrite("."); Ractor.receive }
    end
    running.read(2)
  RUBY

  # Ruby 3.1 and 3.2 export a lock under which the pages can be listed nevertheless.
  both_allocators "Ruby slots beside Ractors" do |preload|
    listed = RUBY_VERSION < "3.3"
    change = inject(preload, <<~RUBY, setup: RACTORS)
      slot_size = GC::INTERNAL_CONSTANTS.values_at(:BASE_SLOT_SIZE, :RVALUE_SIZE).compact.first
      $objects = nil
      900_000.times { $objects = [$objects] }
      900_000 * slot_size
    RUBY

    assert_rise(change, listed ? "ruby_heap/live_slots" : "ruby_heap/whole_pages")
    assert_operator(change.after.bytes("unattributed"), :<, MIB / 4)
    check = change.after.rows.dig("ruby_heap", "check")

    assert_equal(check["expected_bytes"], check["actual_bytes"])
    refute_empty(change.after.ledger["reasons"])
    assert_equal(listed, change.after.rows.key?("ruby_heap/free_slots"))
  end

  both_allocators "main stack" do |preload|
    change = inject(preload, "Host.touch_stack(#{INJECTED + RESERVED_STACK}); #{INJECTED}",
                    setup: "Process.setrlimit(:STACK, #{2 * INJECTED}); Host.touch_stack(#{RESERVED_STACK})")

    assert_rise(change, "stacks/main")
  end

  both_allocators "a thread's stack" do |preload|
    change = inject(preload, "start << true; touched.pop; #{INJECTED}", setup: <<~RUBY, env: thread_stack)
      start, touched = Queue.new, Queue.new
      Thread.new { start.pop; Host.touch_stack(#{INJECTED}); touched << true; sleep }
    RUBY

    assert_rise(change, "stacks/threads")
  end

  # Before Ruby 3.3, RUBY_MN_THREADS has no effect.
  both_allocators "stacks of threads that may migrate" do |preload|
    change = inject(preload, <<~RUBY, setup: "start, touched = Queue.new, Queue.new", env: mn_threads)
      3.times { Thread.new { Host.touch_stack(#{INJECTED / 4}); touched << true; start.pop } }
      3.times { touched.pop }
      #{INJECTED / 4 * 3}
    RUBY

    assert_rise(change, "stacks/threads")
  end

  both_allocators "fibers" do |preload|
    change = inject(preload, "fibers.each(&:resume); #{INJECTED}", setup: <<~RUBY, env: fiber_stack)
      fibers = Array.new(32) { Fiber.new { Fiber.yield; Host.touch_stack(#{INJECTED / 32}); Fiber.yield } }
      fibers.each(&:resume)
    RUBY

    assert_rise(change, "stacks/fibers")
  end

  [64, 520, 5_000].each do |size|
    both_allocators "malloc blocks of #{size} bytes" do |preload|
      skip_under_sanitizer
      count = (INJECTED / size) + 1
      change = inject(preload, "Host.malloc_blocks(#{size}, #{count})")

      if preload
        assert_rise(change, "malloc/in_use", bookkeeping: BOOKKEEPING)
      else
        assert_rise(change, "malloc/main_heap", bytes: change.injected + (8 * count))
      end
    end
  end

  both_allocators "mmapped malloc" do |preload|
    skip_under_sanitizer
    change = inject(preload, "Host.malloc_blocks(#{2 * INJECTED}, 1)")

    assert_rise(change, preload ? "malloc/in_use" : "malloc/mmapped")
  end

  both_allocators "a file mapping" do |preload|
    Tempfile.create("mapped") do |file|
      file.write(Random.bytes(INJECTED))
      file.flush

      assert_rise(inject(preload, "Host.mmap_file(#{file.path.dump}).last"), "files/others")
    end
  end

  %i[anonymous memfd shm_open].each do |kind|
    both_allocators "shared memory by #{kind}" do |preload|
      change = inject(preload, "Host.shared_memory(:#{kind}, #{INJECTED}); #{INJECTED}")

      assert_rise(change, "shared_memory")
    end
  end

  both_allocators "a foreign anonymous mapping" do |preload|
    change = inject(preload, "[#{INJECTED}, Host.mmap_anonymous(#{INJECTED})]")

    assert_rise(change, "unattributed", bytes: INJECTED)
    assert_listed(change)
  end

  both_allocators "a foreign mapping without reserve" do |preload|
    change = inject(preload, "[#{INJECTED}, Host.mmap_anonymous(#{INJECTED}, noreserve: true)]")

    assert_rise(change, "unattributed", bytes: INJECTED)
    assert_listed(change)
    if preload
      check = change.after.rows.fetch("malloc").fetch("check")

      assert(change.before.rows.dig("malloc", "check", "verified"), "before: #{change.before.rows['malloc']['check']}")
      refute(check["verified"], check.to_s)
      assert_equal(INJECTED, (check["expected_bytes"] - check["actual_bytes"]).abs)
    end
  end

  # As a library that calls them through FFI: in heaps of 64 MiB, one for each thread, and in mapped blocks.
  C_LIBRARY = <<~RUBY
    require "fiddle"
    library = Fiddle.dlopen("libc.so.6")
    malloc = Fiddle::Function.new(library["malloc"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
    types = [Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT, Fiddle::TYPE_SIZE_T]
    memset = Fiddle::Function.new(library["memset"], types, Fiddle::TYPE_VOIDP)
    block = ->(size) { memset.call(malloc.call(size), 1, size) }
    waiting, go = Queue.new, Queue.new
    threads = Array.new(4) do
      Thread.new { block.call(64); waiting << true; go.pop&.then { |count, size| count.times { block.call(size) } } }
    end
    threads.size.times { waiting.pop }
  RUBY

  { "heaps" => 100_000, "mapped blocks" => 1_000_000 }.each do |kind, size|
    define_method("test_malloc_of_the_c_library_beside_jemalloc_in_#{kind.tr(' ', '_')}") do
      skip_under_sanitizer
      skip_without "fiddle"
      count = 3 * INJECTED / size / 4
      change = inject(ChildProcess::ALLOCATORS[:jemalloc], <<~RUBY, setup: C_LIBRARY)
        threads.each { go << [#{count}, #{size}] }
        threads.each(&:join)
        #{4 * count * size}
      RUBY

      assert_beside(change, blocks: size < 128 << 10 ? 0 : 4 * count)
    end
  end

  # Their sizes do not distinguish these from jemalloc's own, so they are attributed to no owner.
  def test_foreign_mappings_that_may_be_jemallocs
    foreign = [2 * INJECTED, INJECTED / 2]
    ledger, round_trip = child_json(<<~RUBY, preload: ChildProcess::ALLOCATORS[:jemalloc], requires: ["memscope_test"])
      #{foreign}.each { |bytes| Host.mmap_anonymous(bytes, noreserve: true) }
      ledger = Memscope.ledger
      reading, writing = IO.pipe
      Process.wait(fork { writing.write(Memscope.ledger(shared: true).to_json); exit! })
      writing.close
      require "json"
      shared = JSON.parse(reading.read)
      puts JSON.generate([ledger, Memscope::Ledger.from_h(shared).to_json == JSON.generate(shared)])
    RUBY
    tree = LedgerTree.new(ledger)
    listed = tree.rows.dig("unattributed", "detail", "mappings").map { |mapping| mapping["end"] - mapping["start"] }

    assert_empty(foreign - listed)
    assert_operator(tree.bytes("unattributed"), :>=, foreign.sum)
    assert_match(/look like jemalloc's, and some of them are not/, ledger["reasons"]["unattributed"])
    refute(tree.rows.dig("malloc", "check", "verified"))
    assert(round_trip)
  end

  # Pooled fiber stacks are known by their size, threads' stacks by the thread library's lists.
  def test_threads_with_stacks_as_large_as_a_fibers
    sizes = { "RUBY_THREAD_MACHINE_STACK_SIZE" => "528384", "RUBY_THREAD_VM_STACK_SIZE" => "131072" }
    live = child_json(<<~RUBY, env: sizes)
      threads = Array.new(16) { Thread.new { sleep } }
      Thread.pass until threads.all?(&:stop?)
      require "json"
      puts JSON.generate(Memscope.ledger.dig(:stacks, :threads).detail[:live])
    RUBY

    assert_includes(16..17, live) # Ruby 3.3 and newer have a timer thread too
  end

  both_allocators "an untouched mapping" do |preload|
    change = inject(preload, "Host.mmap_anonymous(#{8 * INJECTED}, touch: false)")

    assert_rise(change, nil, bytes: 0)
  end

  # jemalloc counts such a block as in use; :not_resident subtracts it again, so the total of malloc does not change.
  both_allocators "an untouched malloc block" do |preload|
    skip_under_sanitizer
    change = inject(preload, "Host.malloc_blocks(#{8 * INJECTED}, 1, touch: false)")
    moved = change.after.changes_since(change.before).reject { |path, _| path.start_with?("malloc/") }

    moved.each { |path, rise| assert_operator(rise.abs, :<=, MIB, "#{path} rose by #{rise}\n#{change.after}") }
  end

  Change = Struct.new(:injected, :before, :after, keyword_init: true)

  private

  def thread_stack
    { "RUBY_THREAD_MACHINE_STACK_SIZE" => (2 * INJECTED).to_s }
  end

  def mn_threads
    { "RUBY_MN_THREADS" => "1", **thread_stack }
  end

  def fiber_stack
    { "RUBY_FIBER_MACHINE_STACK_SIZE" => (INJECTED / 16).to_s }
  end

  # Keeps no dirty pages: an injection would reuse existing ones, and leave the rest of a new mapping dirty.
  def inject(preload, injection, setup: "", env: {})
    env = { "MALLOC_CONF" => "dirty_decay_ms:0,cache_oblivious:false", **env }
    answer = answer(format(self.class::SCRIPT, setup: setup, injection: injection), preload, env)
    before, after = answer.values_at("before", "after").map { |ledger| LedgerTree.new(ledger) }

    assert_empty(before.gaps + after.gaps)
    Change.new(injected: answer["injected"], before: before, after: after)
  end

  def answer(script, preload, env) = child_json(script, preload: preload, env: env)

  # jemalloc's row stays exact, and what the C library's malloc holds is unattributed, with its own reason and count.
  def assert_beside(change, blocks:)
    rises = change.after.changes_since(change.before)
    detail = change.after.rows.dig("unattributed", "detail")

    assert_operator rises["malloc"].abs, :<, 2 * MIB, change.after.to_s
    assert_in_delta change.injected, rises["unattributed"], change.injected / 20, change.after.to_s
    assert_in_delta change.injected, detail["c_library_bytes"], change.injected / 20
    assert_operator detail["c_library_heaps"], :>=, 4
    known = [change.before, change.after].map do |tree|
      tree.rows.dig("unattributed", "detail", "c_library_blocks").to_i
    end

    assert_equal blocks, known.last - known.first
    assert_match(/\Amalloc of the C library is in use beside jemalloc/, change.after.ledger["reasons"]["unattributed"])
    checks = change.after.rows.each_value.filter_map { |row| row["check"] }

    assert_equal [true], checks.map { |check| check["verified"] }.uniq, checks.to_s
  end

  # The row at `path`, and the rows above it, rose by `bytes`; no other row changed by more than 1 MiB. `bookkeeping`
  # names the rows of the allocator's own metadata for what was injected: up to a twelfth of it, plus a node of
  # jemalloc's radix tree if an address needs a new one, which counts as metadata, and as not resident until it is
  # touched.
  def assert_rise(change, path, bytes: change.injected, bookkeeping: [])
    expected = ancestry(path).to_h { |row| [row, [bytes, [bytes / 50, 256 * 1024].max]] }
    bookkeeping.each { |row| expected[row] = [0, (bytes / 12) + RADIX_TREE_NODE] }
    expected["malloc"] = [bytes, bytes / 12] if bookkeeping.any?
    change.after.changes_since(change.before).each do |row, rise|
      amount, tolerance = expected.fetch(row) { [0, BOOKKEEPING.include?(row) ? MIB + RADIX_TREE_NODE : MIB] }

      assert_in_delta(amount, rise, tolerance, "#{row} rose by #{rise}\n#{change.before}\n\n#{change.after}")
    end
  end

  # "malloc/in_use" -> ["malloc", "malloc/in_use"]
  def ancestry(path)
    names = path.to_s.split("/")
    names.each_index.map { |index| names[0..index].join("/") }
  end

  # change.injected is [bytes, address]: the detail lists the mapping with exactly these bounds.
  def assert_listed(change)
    bytes, address = change.injected
    mappings = change.after.rows.fetch("unattributed").fetch("detail").fetch("mappings")

    assert_includes(mappings.map { |mapping| mapping.values_at("start", "end", "resident_bytes") },
                    [address, address + bytes, bytes])
  end
end

# The same, by copies of a process that has not loaded memscope.
class InjectionFromOutsideTest < InjectionTest
  include Bystander

  # A copy with Ractors may wait for one that it does not have. The others inject nothing.
  instance_methods.grep(/ractors|may_be_jemallocs|as_large_as/i).each { |name| undef_method name }
  only_in_full(*instance_methods.grep(/\Atest_/).grep_v(/(?:Ruby_slots|thread_s_stack|_520_|a_file).*glibc/))

  SCRIPT = <<~RUBY
    require "json"
    require "memscope_test"
    %<setup>s
    3.times { GC.start }
    GC.disable
    turn = -> { $stdout.flush; $stdin.gets }
    puts
    turn.call
    injected = begin
      %<injection>s
    end
    puts JSON.generate(injected)
    turn.call
  RUBY

  def setup
    skip_under_sanitizer # the processes are without it
  end

  private

  def answer(script, preload, env)
    IO.pipe do |input, turn|
      command = [*ChildProcess.ruby, "-e", script, { in: input, err: File::NULL }]
      running(*command, env: ChildProcess.environment(preload, env)) do |pid, output|
        before = ledger(pid)
        turn.puts
        injected = JSON.parse(output.gets)
        { "injected" => injected, "before" => before, "after" => ledger(pid) }
      end
    end
  end

  def ledger(pid)
    copy = Memscope::Copy.new(pid)
    JSON.parse(copy.call(:ledger).to_json)
  ensure
    copy&.close
  end
end
