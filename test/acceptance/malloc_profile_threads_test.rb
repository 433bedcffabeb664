# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/compiled"
require_relative "../support/malloc_profile_ways"

# The malloc profile while several threads, fibers and processes use it at once.
class MallocProfileThreadsTest < MemscopeTest
  extend MallocProfileWays

  parallelize_me!

  WAYS = MallocProfileWays::EACH_BACKEND

  PRELUDE = <<~RUBY
    native = Memscope.const_get(:Native)
    profile = Memscope::MallocProfile
    backend = ENV.fetch("BACKEND").to_sym
    error = ->(&call) { call.call && nil rescue "\#{$!.class}: \#{$!.message}" }
    # The live bytes that the method of this name has allocated, by tag.
    tags = lambda do |taken, name = "Leaks.leak"|
      mine = taken.stacks.select { |stack| stack.frames.any? { |index| taken.frames[index].name == name } }
      mine.group_by { |stack| stack.tag.to_s }.transform_values { |stacks| stacks.sum(&:live_bytes) }
    end
    hold = ->(size = 4096, count = 500) { Leaks.leak(size, count, :here) || true }
    # Allocates past the interval that jemalloc drew for this OS thread at the previous rate: Ruby 3.1 reuses OS
    # threads.
    settle = -> { Leaks.churn(4000, :here) || true }
  RUBY

  def child(script, settings, **options)
    child_json("#{PRELUDE}\n#{script}", requires: %w[json memscope_test], **settings, **options)
  end

  each_way("one_of_many_that_start_at_once") do |settings|
    answer = child(<<~RUBY, settings)
      # Makes all threads find that no profile is running.
      profile.define_singleton_method(:running?) { false }
      gate = Queue.new
      threads = Array.new(8) { Thread.new { gate.pop && error.call { profile.start(rate: 1 << 12, backend: backend) } } }
      Thread.pass until gate.num_waiting == 8
      8.times { gate << true }
      refusals = threads.map(&:value)
      settle.call
      hold.call
      before = native.malloc_profile(nil)
      again = [error.call { profile.start(rate: 1 << 20, backend: backend) }, native.start_profile(:imports, 20)]
      after = native.malloc_profile(nil)
      known = [before, after].map { |body| [body[:rate_bytes], body[:stacks].size, body[:frames].size] }
      puts JSON.generate(refusals: refusals, again: again, known: known, live: [before, after].map { _1[:live_bytes] })
    RUBY

    assert_equal 1, answer["refusals"].count(nil)
    (answer["refusals"].compact + [answer["again"].first]).each do |refusal|
      assert_match(/\AMemscope::Unavailable: a malloc profile is already running: stop it first/,
                   refusal)
    end
    assert_equal "running", answer["again"].last
    before, after = answer["known"]

    assert_equal [4096, 4096], [before.first, after.first]
    assert_operator after[1], :>=, before[1], "stacks of the profile that runs are lost"
    assert_operator after[2], :>=, before[2], "frames of the profile that runs are lost"
    answer["live"].each { |bytes| assert_in_delta 2 << 20, bytes, 1 << 20 }
  end

  each_way("a_start_that_fails_leaves_the_last_profile") do |settings|
    answer = child(<<~RUBY, settings)
      profile.start(rate: 1 << 12, backend: backend)
      settle.call
      hold.call
      profile.stop
      failure = native.start_profile(:jemalloc, 12) if backend == :imports
      puts JSON.generate([failure, profile.snapshot.total_live_bytes])
    RUBY

    assert_equal "unsupported", answer.first if settings[:env]["BACKEND"] == "imports"

    assert_in_delta 2 << 20, answer.last, 1 << 20
  end

  # The second profile samples every block. At the first one's rate, the next sample is still far.
  def test_a_profile_after_another_misses_no_block_of_the_thread_that_starts_it
    blocks = child(<<~RUBY, { env: { "BACKEND" => "imports" } })
      profile.start(rate: 1 << 30, backend: backend)
      hold.call
      profile.stop
      profile.start(rate: profile::EVERY_BLOCK, backend: backend)
      hold.call(100, 60)
      taken = profile.stop
      mine = taken.stacks.select { |stack| stack.frames.any? { |index| taken.frames[index].name == "Leaks.leak" } }
      puts JSON.generate(mine.sum(&:live_objects))
    RUBY

    assert_equal 60, blocks
  end

  each_way("a_forked_child_inherits_the_profile_that_runs") do |settings|
    answer = child(<<~RUBY, settings)
      profile.start(rate: 1 << 12, backend: backend)
      settle.call
      hold.call
      reader, writer = IO.pipe
      pid = fork do
        refusal = error.call { profile.start(rate: 1 << 13, backend: backend) }
        inherited = profile.stop
        profile.start(rate: 1 << 13, backend: backend)
        writer << JSON.generate([refusal, inherited.running?, inherited.total_live_bytes, profile.snapshot.rate_bytes])
        exit!(0)
      end
      Process.wait(pid)
      writer.close
      puts JSON.generate(in_child: JSON.parse(reader.read), in_parent: [profile.running?, profile.stop.rate_bytes])
    RUBY
    refusal, running, live_bytes, rate = answer["in_child"]

    assert_match(/is already running/, refusal)
    refute running
    assert_in_delta 2 << 20, live_bytes, 1 << 20
    assert_equal 1 << 13, rate
    assert_equal [true, 1 << 12], answer["in_parent"]
  end

  # Children that allocate the same would otherwise err alike, and so would the sum of their profiles. The numbers that
  # jemalloc draws are its own.
  def test_forked_children_draw_other_random_numbers
    samples = child(<<~RUBY, { env: { "BACKEND" => "imports" } })
      profile.start(rate: 1 << 12, backend: backend)
      hold.call
      before = profile.snapshot.samples
      children = Array.new(8) do
        reader, writer = IO.pipe
        fork { hold.call(64, 20_000) && writer.write(profile.snapshot.samples - before) && exit!(0) }
        writer.close
        reader
      end
      puts JSON.generate(children.map { |reader| Integer(reader.read) })
      Process.waitall
    RUBY

    assert_in_delta 310, samples.sum / 8.0, 40
    assert_operator samples.uniq.size, :>, 2
  end

  # Whatever happens in between: the reading is a complete profile, or an error that says what happened.
  each_way("readings_while_others_start_and_stop") do |settings|
    answer = child(<<~RUBY, settings)
      finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 1.5
      turns = { start: 0, stop: 0, read: 0, inflation: 0, generation: 0 }
      # On a busy machine, goes on until there were enough turns.
      go_on = lambda do
        Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish || turns.values_at(:start, :stop, :read).min <= 5
      end
      known = Hash.new(0)
      faults = []
      check = lambda do |taken|
        known_frames = 0...taken.frames.size
        faults << "no such frame" unless taken.stacks.all? { |stack| stack.frames.all? { known_frames.cover?(_1) } }
        faults << "another rate: \#{taken.rate_bytes}" unless [1 << 12, 1 << 13].include?(taken.rate_bytes)
        faults << "a sum: \#{taken.total_live_bytes}" unless taken.total_live_bytes == taken.stacks.sum(&:live_bytes)
      end
      behind = lambda do |name, &act|
        Thread.new do
          while go_on.call
            begin
              act.call
              turns[name] += 1
            rescue Memscope::Unavailable
              known[$!.message] += 1
            end
            "x" * rand(9000)
            sleep(rand / 500)
          end
        end
      end
      threads = Array.new(2) { |index| behind.call(:start) { profile.start(rate: 1 << (12 + index), backend: backend) } }
      threads += Array.new(2) { behind.call(:stop) { check.call(profile.stop.tap { faults << "runs on" if _1.running? }) } }
      threads += Array.new(2) { behind.call(:read) { check.call(profile.snapshot) } }
      threads << behind.call(:inflation) { native.profile_inflation }
      threads << behind.call(:generation) { profile.next_generation }
      threads.each(&:join)
      profile.stop if profile.running?
      twice = error.call { profile.stop }
      puts JSON.generate(turns: turns, known: known.keys, faults: faults.uniq, twice: twice)
    RUBY

    assert_empty answer["faults"]
    assert_match(/\AMemscope::Unavailable: no malloc profile is running/, answer["twice"])
    %w[start stop read].each { |name| assert_operator answer["turns"].fetch(name, 0), :>, 5, answer["turns"] }
    answer["known"].each do |message|
      assert_match(/is already running|no malloc profile (is running|was started)|started before it was read/, message)
    end
  end

  # The dynamic linker continues to relocate a page: it must find the page with the same protection as before.
  def test_a_library_that_is_being_relocated
    path = Compiled.shared("slow_relocation.c", "-O1", "-fno-plt", "-Wl,-z,now", "-Wl,-z,relro")
    answer = child(<<~RUBY, { env: { "BACKEND" => "imports" } })
      profile.start(rate: 1 << 12, backend: backend)
      Host.load_beside_lookups(#{path.dump})
      native.malloc_profile(nil)
      puts JSON.generate(Host.import_slots.values.select { |name, _, path,| name == "malloc" && path == #{path.dump} })
    RUBY

    refute_empty answer
    answer.each { |slot| assert_match(/memscope\.so/, slot.last) }
  end

  # A word between functions cannot be patched: its page may not be written to.
  def test_a_library_with_text_relocations
    path = Compiled.shared("text_relocation.c", "-O1", "-Wl,-z,notext")
    answer = child(<<~RUBY, { env: { "BACKEND" => "imports", "LD_PRELOAD" => path } })
      profile.start(rate: 1 << 12, backend: backend)
      slots = Host.import_slots.values.select { |name, _, path,| name == "malloc" && path == #{path.dump} }
      profile.stop
      puts JSON.generate(slots.map { |slot| slot.last.end_with?("memscope.so") })
    RUBY

    assert_equal [false, true], answer.sort_by(&:to_s)
  end

  # A child has no thread that would release the dynamic linker's lock, which dlsym takes while a profile is running.
  def test_forks_while_another_thread_looks_for_slots
    answer = child(<<~RUBY, { env: { "BACKEND" => "imports" } })
      profile.start(rate: 1 << 12, backend: backend)
      Host.look_up_behind
      hangs = ->(pid) { 1_500.times { Process.wait(pid, Process::WNOHANG) ? (break false) : sleep(0.02) } }
      hanging = 6.times.any? do
        pid = fork { Host.import_slots && exit!(0) }
        hangs.call(pid) && Process.kill(:KILL, pid)
      end
      puts JSON.generate([hanging])
      $stdout.flush
      exit!(0)
    RUBY

    assert_equal [false], answer
  end

  each_way("a_signal_handler_on_a_small_stack") do |settings|
    skip_under_sanitizer # its malloc needs more of the stack
    answer = child(<<~RUBY, settings)
      profile.start(rate: 512, backend: backend)
      settle.call
      Host.malloc_on_a_signal_stack
      hold.call
      puts JSON.generate([profile.stop.total_live_bytes])
    RUBY

    assert_in_delta 500 * 4096, answer.first, 100 * 4096
  end

  # A possible deadlock: one thread holds the dynamic linker's lock, the other the lock for patching imports.
  def test_a_lookup_in_a_visit_of_the_loaded_objects
    answer = child(<<~RUBY, { env: { "BACKEND" => "imports" }, timeout: 60 })
      profile.start(rate: 1 << 12, backend: backend)
      Host.look_up_in_a_visit
      puts JSON.generate([true])
    RUBY

    assert_equal [true], answer
  end

  def test_where_jemalloc_has_nowhere_to_write
    skip_under_sanitizer
    skip_without_jemallocs_profiler

    answer = child(<<~RUBY, WAYS.fetch(:jemalloc))
      profile.start(rate: 1 << 12, backend: backend)
      Host.deny_memfd_create!
      puts JSON.generate([error.call { profile.snapshot }, error.call { profile.stop }, profile.running?])
    RUBY

    answer.first(2).each { |said| assert_match(/could not be read: not supported.*needs memfd_create/, said) }
    refute answer.last
  end

  # A write beyond the limit would end the process (SIGXFSZ).
  def test_where_jemalloc_may_not_write_as_much_as_it_has
    skip_under_sanitizer
    skip_without_jemallocs_profiler

    answer = child(<<~RUBY, WAYS.fetch(:jemalloc))
      profile.start(rate: 1 << 12, backend: backend)
      settle.call
      hold.call
      no_limit = Process.getrlimit(:FSIZE)
      Process.setrlimit(:FSIZE, 1000, no_limit.last)
      said = error.call { profile.snapshot }
      Process.setrlimit(:FSIZE, *no_limit)
      puts JSON.generate([said, profile.stop.samples])
    RUBY

    assert_match(/could not be read: refused by the kernel.*RLIMIT_FSIZE/, answer.first)
    assert_operator answer.last, :>, 0
  end

  # ---- tags -------------------------------------------------------------------------------------------------------

  each_way("a_tag_is_of_the_fiber_that_has_it") do |settings|
    answer = child(<<~RUBY, settings)
      profile.start(rate: 1 << 12, backend: backend)
      settle.call
      step = -> { hold.call(4096, 250) } # 1 MB
      before = Fiber.new { 4.times { step.call && Fiber.yield } } # first resumed before any tag, so it has none
      before.resume
      a = Fiber.new { Memscope.tag("a") { 2.times { step.call && Fiber.yield } } && step.call && Fiber.yield }
      b = Fiber.new { Memscope.tag("b") { 2.times { step.call && Fiber.yield } } && step.call && Fiber.yield }
      3.times { [a, before, b].each(&:resume) }
      step.call # no tag: neither a nor b
      puts JSON.generate(tags.call(profile.stop))
    RUBY

    assert_in_delta 2 << 20, answer.fetch("a"), 500_000
    assert_in_delta 2 << 20, answer.fetch("b"), 500_000
    assert_in_delta 7 << 20, answer.fetch(""), 1_200_000
  end

  # As docs/profile.md says: 2,500 tags find room, and 4,096 fill the table.
  each_way("a_tag_without_room_is_said_to_be_one") do |settings|
    answer = child(<<~RUBY, settings)
      names = Array.new(2500) { |number| "OrdersController#action_\#{number}" }
      names.each { |name| Memscope.tag(name) { nil } }
      profile.start(rate: 1 << 12, backend: backend)
      settle.call
      names.values_at(0, -1).each { |name| Memscope.tag(name) { hold.call(4096, 250) } }
      20_000.times { |number| Memscope.tag("another \#{number}") { nil } }
      Memscope.tag("one too many") { hold.call(4096, 250) }
      Memscope.tag(names.first) { hold.call(4096, 250) }
      puts JSON.generate(tags.call(profile.stop))
    RUBY

    assert_equal %w[OrdersController#action_0 OrdersController#action_2499 [overflow]], answer.keys.sort
    assert_in_delta 2 << 20, answer.fetch("OrdersController#action_0"), 500_000
    assert_in_delta 1 << 20, answer.fetch("[overflow]"), 500_000
  end

  each_way("a_fiber_that_begins_under_a_tag_takes_it_over") do |settings|
    answer = child(<<~RUBY, settings)
      profile.start(rate: 1 << 12, backend: backend)
      settle.call
      step = -> { hold.call(4096, 250) }
      enumerator = Enumerator.new { |to| 3.times { step.call && to << 1 } }
      Memscope.tag("outer") { enumerator.next && Memscope.tag("inner") { enumerator.next } }
      enumerator.next # still has the outer tag
      made = Memscope.tag("made") { Fiber.new { step.call } } # created in the tag, but first resumed outside of it
      made.resume
      Memscope.tag("thread") { Thread.new { settle.call && step.call }.join }
      Memscope.tag("again") { Thread.current[:__memscope_tag__].class }.then { |kept| kept == Integer || abort("not kept") }
      Thread.new { settle.call && Thread.current.freeze && Memscope.tag("frozen") { step.call } }.join
      kept = Thread.current.keys.grep(/memscope/)
      puts JSON.generate([tags.call(profile.stop), kept])
    RUBY
    tags, kept = answer

    assert_in_delta 3 << 20, tags.fetch("outer"), 600_000
    assert_in_delta 1 << 20, tags.fetch("frozen"), 400_000
    assert_equal ["", "frozen", "outer"], tags.keys.sort
    assert_in_delta 2 << 20, tags.fetch(""), 600_000
    assert_empty kept
  end

  # Ruby threads that migrate between OS threads.
  each_way("tags_with_threads_that_migrate") do |settings|
    answer = child(<<~RUBY, { **settings, env: { **settings[:env], "RUBY_MN_THREADS" => "1", "RUBY_MAX_CPU" => "4" } })
      profile.start(rate: 1 << 14, backend: backend)
      settle.call
      threads = Array.new(6) do |index|
        Thread.new do
          body = -> { 40.times { sleep(rand / 500) && Array.new(64) { "x" * 5000 }.tap { |held| (Thread.current[:held] ||= []) << held } } }
          index.even? ? Memscope.tag("t\#{index}", &body) : body.call
          Thread.current[:held]
        end
      end
      held = threads.map(&:value)
      GC.start
      puts JSON.generate(tags.call(profile.stop, "String#*"))
    RUBY
    each = 40 * 64 * 5001

    %w[t0 t2 t4].each { |name| assert_in_delta each, answer.fetch(name), each * 0.25, name }
    assert_in_delta 3 * each, answer.fetch(""), each
  end

  # One OS thread runs many Ractors, one after another: the end of one must not count as the end of the next.
  each_way("ractors_that_follow_one_another") do |settings|
    skip "Ractors have OS threads of their own before Ruby 3.3" if RUBY_VERSION < "3.3"

    answer = child(<<~RUBY, { **settings, env: { **settings[:env], "RUBY_MAX_CPU" => "2" } }, ruby_args: ["-W0"])
      profile.start(rate: 1 << 14, backend: backend)
      settle.call
      # The second half begins, and waits, before the first half ends.
      made = Array.new(8) do |index|
        Ractor.new(index) do |turn|
          sleep(turn < 4 ? 0.1 : 0.4)
          Array.new(400) { "x" * 5000 }
        end
      end
      held = made.map { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
      taken = profile.stop
      puts JSON.generate([tags.call(taken, "String#*"), taken.by(:line).map { |entry| [entry.name, entry.live_bytes] }])
    RUBY

    assert_in_delta 8 * 400 * 5001, answer.first.fetch(""), 4_000_000, answer.last
  end

  # Before Ruby 3.1.4 and 3.2.3, a hook for garbage collections crashes the process here (Bug #18464).
  def test_ractors_that_begin_during_garbage_collections
    answer = child(<<~RUBY, { preload: nil, env: { "BACKEND" => "imports" } }, ruby_args: ["-W0"])
      profile.start(rate: 512, backend: backend)
      5.times do |round|
        100.times { |number| eval("def made_\#{round}_\#{number} = ('x' * 5000).size") && send("made_\#{round}_\#{number}") }
        GC.start(full_mark: false)
        10.times { Object.new.to_s }
        GC.stress = 1
        Ractor.new { 1 }.then { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
        GC.stress = false
      end
      puts JSON.generate(profile.stop.overhead.samples_taken.positive?)
    RUBY

    assert answer
  end

  # A thread that is reading a stack at the fork does not go on in the child, which must not wait for it.
  def test_heap_graphs_beside_a_thread_that_is_sampled
    answers = child(<<~RUBY, { preload: nil, env: { "BACKEND" => "imports" } }, timeout: 60)
      profile.start(rate: 512, backend: backend)
      4.times { Leaks.churn_behind(100_000) }
      puts JSON.generate(Array.new(12) { Memscope.heap_graph(top: 1, deadline: 2).reasons[:reachable_count].to_s })
    RUBY

    assert_empty answers - [""]
  end
end
