# frozen_string_literal: true

require "tmpdir"
require_relative "../../test_helper"

# A process that samples itself. `step` takes one sample at a given second, so that hours pass in no time.
class HistorySamplerTest < MemscopeTest
  parallelize_me!

  PREPARE = <<~RUBY
    History = Memscope::History
    NATIVE = Memscope.const_get(:Native)
    NATIVE.open_history
    SAMPLER = History::Sampler.new
    NOW = History::Sampler.now.to_i
    def step(after) = SAMPLER.step(NOW + after)
    def last(name)
      history = Memscope.history
      history.points(name, step: 10).reverse.find(&:last)&.last if history.series.include?(name)
    end
    def own_threads = Thread.list.count { |thread| thread.name == "memscope sampler" }
    def wait(seconds = 20)
      until yield
        sleep 0.02
        abort "waited in vain" if (seconds -= 0.02).negative?
      end
    end
  RUBY

  def run_child(script, **options) = child_json("#{PREPARE}#{script}", requires: ["json"], **options)

  both_allocators "rss is that of the same moment" do |preload|
    pairs = run_child(<<~RUBY, preload: preload)
      kept = []
      pairs = Array.new(60) do |at|
        kept << "x" * rand(4_000_000)
        kept.clear if at % 20 == 19
        before = Memscope.rss
        step(at * 10)
        [before, Memscope.rss]
      end
      puts JSON.generate(Memscope.history.points(:rss).first(60).map(&:last).zip(pairs))
    RUBY

    assert_equal 60, pairs.size
    pairs.drop(12).each do |sample, (before, after)|
      assert_includes ([before, after].min - 131_072)..([before, after].max + 131_072), sample
    end
    assert_operator(pairs.count { |sample, both| both.include?(sample) }, :>, 20)
  end

  both_allocators "malloc in use is that of the ledger" do |preload|
    skip_under_sanitizer
    task = preload ? :totals : :walk # which walks the heaps of glibc
    sampled, in_use = run_child(<<~RUBY, preload: preload)
      kept = Array.new(20_000) { |number| "x" * (64 + number % 500) }
      # They live on: the end of a thread frees its caches, and comes after it has been joined.
      threads = 32.times.map { Thread.new { Array.new(500) { "y" * 100 }.clear && sleep } }
      Thread.pass until threads.all?(&:stop?)
      3.times { Memscope.ledger(deep: true) }
      GC.disable
      sampled = SAMPLER.send(#{task.inspect})[:malloc_in_use]
      puts JSON.generate([sampled, Memscope.ledger(deep: true)[:malloc].detail[:in_use_bytes], kept.size])
    RUBY

    assert_operator sampled, :>, 4 << 20
    assert_in_delta in_use, sampled, 256 << 10
  end

  # Requests to Puma's control server are not counted.
  def test_requests_of_puma
    without, control, requests = child_json(<<~RUBY, requires: %w[json net/http], bundle: true)
      #{PREPARE}
      serve = lambda do |name, count|
        server = Puma::Server.new(->(_env) { [200, {}, ["ok"]] })
        port = server.add_tcp_listener("127.0.0.1", 0).addr[1]
        server.run(true, thread_name: name)
        count.times { Net::HTTP.get("127.0.0.1", "/", port) }
        server
      end
      step(0)
      without = [last(:requests), SAMPLER.reasons[:requests]]
      require "puma"
      require "puma/server"
      serve.call("ctl", 3)
      step(10)
      control = last(:requests)
      server = serve.call("srv", 7)
      wait { server.requests_count == 7 }
      step(20)
      puts JSON.generate([without, control, last(:requests)])
    RUBY

    assert_equal [[nil, "only Puma's requests are counted"], nil, 7], [without, control, requests]
  end

  both_allocators "what grows is in the right series", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    grown = run_child(<<~RUBY, preload: preload)
      measure = lambda do |at, &grow|
        @kept = nil
        GC.start
        step(at)
        step(at + 600)
        before = %i[rss malloc malloc_in_use ruby_heap live_slots uss].to_h { |name| [name, last(name)] }
        @kept = grow.call
        3.times { |more| step(at + 10_000 + more * 10_000) }
        before.to_h { |name, value| [name, last(name) - value] }
      end
      # jemalloc rounds up to 1 MiB.
      malloc = measure.call(0) { Array.new(64) { "m" * ((1 << 20) - 64) } }
      objects = measure.call(100_000) { Array.new(1_000_000) { Object.new } }
      puts JSON.generate([malloc, objects])
    RUBY
    malloc, objects = grown

    %w[rss malloc malloc_in_use uss].each { |name| assert_in_delta 64 << 20, malloc[name], 3 << 20, name }
    assert_in_delta 0, malloc["ruby_heap"], 1 << 20
    assert_in_delta 1_000_000, objects["live_slots"], 50_000
    assert_in_delta 40_000_000, objects["ruby_heap"], 6 << 20
    assert_includes (8 << 20)..(20 << 20), objects["malloc_in_use"] # the Array, and Ruby's own lists
  end

  both_allocators "it uses at most a thousandth of a core", in_full: ChildProcess::ALLOCATORS.keys do |preload|
    skip_under_sanitizer
    share, spacings = run_child(<<~RUBY, preload: preload)
      kept = Array.new(400_000) { |at| at.to_s * 60 }
      cpu = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }
      since = cpu.call
      (0..2 * 3600).step(10) { |at| step(at) }
      share = (cpu.call - since) / 7200
      puts JSON.generate([share, Memscope::History::SERIES.keys.to_h { |name| [name, SAMPLER.spacing(name)] }])
    RUBY

    assert_operator share, :<=, 0.001
    assert_equal 10, spacings["rss"]
    assert_operator spacings["malloc"], :>=, 60
    assert(spacings.values.all? { |spacing| (spacing % 10).zero? })
  end

  def test_it_judges_every_five_minutes
    judged = run_child(<<~RUBY)
      times = []
      count = -> { times << @at }
      Memscope::Verdict.singleton_class.prepend(Module.new { define_method(:judge) { |one| count.call && super(one) } })
      first = -NOW % 300
      (0..1800).step(10) { |at| step(@at = first + at) }
      kept = Memscope.verdict
      pid = fork { exit!(Memscope::Runtime.current.verdict.nil?) }
      Process.wait(pid)
      puts JSON.generate([times.map { |at| at - first }, kept.equal?(Memscope.verdict), kept.kind, kept.evidence[:points],
                          $?.success?, Memscope.verdict(now: true).equal?(kept)])
    RUBY

    assert_equal [[0, 300, 600, 900, 1200, 1500, 1800], true, "too_early", 6, true, false], judged
  end

  # RSS with the next sample, the rows once they were sampled again.
  def test_what_grows_in_the_first_minutes_is_known_at_once
    soon, later, size = run_child(<<~RUBY)
      Memscope::Runtime.current.history = SAMPLER
      told = -> { Memscope.verdict.then { |it| [it.kind, it.evidence[:grown_bytes], it.growth&.first, it.sentence] } }
      [0, 10].each { |at| step(at) }
      kept = "k" * 50_000_000
      step(20)
      soon = told.call
      step(80)
      puts JSON.generate([soon, told.call, kept.size])
    RUBY

    assert_equal ["too_early", nil, "too_early", "malloc"], [soon[0], soon[2], later[0], later[2][0]]
    assert_operator [soon[1], later[1], later[2][1]].min, :>, size * 9 / 10
    assert_match(/. So far, RSS changed by \+\d+\.\d MiB\.\z/, soon[3])
    assert_match(/\. Since \d\d:\d\d UTC, RSS changed by \+\d+\.\d MiB: malloc \+\d+\.\d/, later[3])
  end

  # Such walks may fork.
  def test_walks_of_all_objects_are_rare
    skip "the same code computes the spacing everywhere" if ChildProcess::BRIEF
    walks = run_child(<<~RUBY)
      walks = []
      count = -> { walks << @at }
      Memscope::RubyHeap.singleton_class.prepend(Module.new { define_method(:bounded) { |**o| count.call && super(**o) } })
      (0..3600).step(10) { |at| step(@at = at) }
      puts JSON.generate([walks, last(:held), Memscope.ledger(objects: true).held_by_objects_bytes])
    RUBY

    assert_operator walks.first.each_cons(2).map { |one, other| other - one }.min, :>=, 590
    assert_includes 50..70, walks.first.first
    assert_in_delta walks.last, walks[1], 1 << 20
  end

  def test_a_clock_that_goes_back_and_samples_that_are_missing
    points, reasons = run_child(<<~RUBY)
      step(0)
      step(-100)
      step(45)
      puts JSON.generate([Memscope.history.points(:threads, step: 10).map(&:last), SAMPLER.reasons])
    RUBY

    assert_includes 4..6, points.size
    assert_equal [1, 1], points.compact
    assert_equal [1, 1], points.values_at(0, -1)
    refute reasons.key?("failed")
  end

  def test_readings_that_others_take_are_not_taken_again
    read, grown, spacing = run_child(<<~RUBY)
      ledgers = 0
      count = lambda { |deep: false| deep || ledgers += 1 }
      Memscope::Ledger.singleton_class.prepend(Module.new { define_method(:read) { |**o| super(**o).tap { count.call(**o) } } })
      step(0)
      20.times do |at|
        ledger = Memscope::Ledger.read
        SAMPLER.offer(ledger, Memscope.process_memory)
        step(at)
      end
      puts JSON.generate([ledgers, last(:malloc), SAMPLER.spacing(:malloc)])
    RUBY

    assert_equal 20, read
    assert_operator grown, :>, 0
    assert_equal 10, spacing
  end

  # Both samples are in one bucket, which keeps the last value of each series.
  def test_rows_sum_to_the_rss_of_their_bucket
    rss, rows = run_child(<<~RUBY)
      SAMPLER.step
      kept = "k" * 50_000_000
      SAMPLER.offer(Memscope::Ledger.read, Memscope.process_memory)
      puts JSON.generate([last(:rss), Memscope::History::ROWS.map { |row| last(row) }])
    RUBY

    assert_equal rss, rows.sum
    assert_operator rss, :>, 50_000_000
  end

  # By the spacing, `points` chooses a ring with a sample in each bucket.
  def test_the_spacing_of_readings_that_others_take_is_the_time_between_them
    spacings, empty = run_child(<<~RUBY)
      clock = History::Sampler.now
      History::Sampler.define_singleton_method(:now) { clock }
      Memscope::Runtime.current.history = SAMPLER
      ledger, memory = Memscope::Ledger.read, Memscope.process_memory
      spacings = [30.2, 10.2].map do |seconds|
        12.times do
          SAMPLER.offer(ledger, memory)
          clock += seconds
        end
        SAMPLER.offer(ledger, memory)
        empty ||= Memscope.history.points(:malloc).count { |point| point.last.nil? }
        [SAMPLER.spacing(:malloc), empty]
      end
      puts JSON.generate([spacings.map(&:first), spacings.first.last])
    RUBY

    assert_equal [30, 10], spacings
    assert_equal 0, empty
  end

  def test_it_starts_and_stops_and_goes_on_with_what_was_kept
    answer = run_child(<<~RUBY)
      answers = [History.running?, History.start, History.start, History.running?, own_threads]
      wait { Memscope.history.series.any? }
      History.stop
      wait { own_threads.zero? }
      stopped = Memscope.history
      answers << History.running? << stopped.running? << stopped.series.size << stopped.reasons.key?(:running)
      History.start
      wait { Memscope.history.events.size == 2 }
      again = Memscope.history
      puts JSON.generate(answers << (again.started_at == stopped.started_at) << again.events.map(&:kind) << own_threads)
    RUBY

    assert_equal [false, true, true, true, 1, false, false, 7, true, true, %w[started started], 1], answer
  end

  def test_a_forked_child_keeps_its_own
    child, parent = run_child(<<~RUBY)
      History::Sampler.send(:remove_const, :SECONDS)
      History::Sampler.const_set(:SECONDS, 1)
      NATIVE.add_to_history({ pss: 5 << 20 }, NOW)
      History.start
      wait { Memscope.history.series.include?(:rss) }
      reader, writer = IO.pipe
      pid = fork do
        first = Memscope.history
        wait { Memscope.history.series.include?(:rss) }
        history = Memscope.history
        writer.puts(JSON.generate([own_threads, first.series, history.series.include?(:pss), history[:rss].baseline,
                                   history.pid == Process.pid, history.running?, history.events.map(&:kind)]))
        exit!
      end
      latest = Memscope.history.points(:rss).last.last
      answer = JSON.parse(reader.gets)
      answer[3] = (answer[3] - latest).abs < (1 << 20)
      Process.wait(pid)
      history = Memscope.history
      puts JSON.generate([answer, [own_threads, history[:rss].baseline, history.events.map(&:kind), history.running?]])
    RUBY

    assert_equal [1, [], false, true, true, true, %w[started]], child
    assert_equal [1, nil, %w[started forked], true], parent
  end

  # A worker's policy would otherwise act on what a purge of the master's heap returns.
  def test_a_forked_child_does_not_know_its_parents_heap
    skip_under_sanitizer
    parent, child = run_child(<<~RUBY)
      History.start
      sampler = Memscope::Runtime.current.history
      wait { sampler.send(:walk) && sampler.trimmable_bytes }
      known = -> { [Memscope::Runtime.current.history&.trimmable_bytes, History::Sampler.reasons.keys] }
      reader, writer = IO.pipe
      Memscope::Snapshot.define_singleton_method(:read) { raise IOError, "no more files" }
      sampler.step
      parent = known.call
      pid = fork do
        writer.puts(JSON.generate(known.call))
        exit!
      end
      Process.wait(pid)
      puts JSON.generate([parent, JSON.parse(reader.gets)])
    RUBY

    assert_kind_of Integer, parent.first
    assert_includes parent.last, "failed"
    assert_equal [nil, []], child
  end

  def test_a_kind_of_reading_that_fails_costs_no_other_series_and_is_not_tried_each_time
    samples, tries, failed = run_child(<<~RUBY)
      $stderr = File.open(File::NULL, "w")
      tries = 0
      Memscope::RubyHeap.define_singleton_method(:bounded) do |**|
        tries += 1
        raise IOError, "no walk"
      end
      (0..300).step(10) { |at| step(at) }
      points = Memscope.history.points(:rss, step: 10).first(31)
      puts JSON.generate([points.count(&:last), tries, SAMPLER.reasons[:failed]])
    RUBY

    assert_equal [31, 1, "a sample failed: no walk (IOError)"], [samples, tries, failed]
  end

  # Each of these is held up until the samples of a minute have been taken: a heap graph and a dump by their stopped
  # child, a purge by its collection, a profile by its block.
  def test_no_sample_waits_for_another_reading
    skip_under_sanitizer
    directory = Dir.mktmpdir
    taken = run_child(<<~RUBY)
      minute = lambda do |at|
        before = Memscope.history.series.include?(:rss) ? Memscope.history.points(:rss, step: 10).count(&:last) : 0
        6.times { |sample| step((at * 60) + (sample * 10)) }
        Memscope.history.points(:rss, step: 10).count(&:last) - before
      end
      children = -> { Dir["/proc/self/task/*/children"].flat_map { |path| File.read(path).split } }
      in_child = [-> { Memscope.heap_graph }, -> { Memscope.dump("#{directory}/dump") }]
      taken = in_child.each_with_index.map do |reading, at|
        thread = Thread.new(&reading)
        Thread.pass while children.call.empty?
        children.call.each { |pid| Process.kill(:STOP, pid.to_i) }
        minute.call(at).tap do
          children.call.each { |pid| Process.kill(:CONT, pid.to_i) }
          thread.join
        end
      end
      held = Queue.new
      GC.singleton_class.prepend(Module.new { define_method(:start) { |**| held.pop } })
      purge = Thread.new { Memscope.purge(:gc) }
      Thread.pass while held.num_waiting.zero?
      taken << minute.call(2)
      held.close
      purge.join
      queue = Queue.new
      profile = Thread.new { Memscope.malloc_profile(backend: :imports) { queue.pop } }
      Thread.pass until profile.stop?
      taken << minute.call(3)
      queue << nil
      profile.join
      puts JSON.generate(taken)
    RUBY

    assert_equal [6, 6, 6, 6], taken
  ensure
    FileUtils.remove_entry(directory)
  end

  def test_many_forks_leave_nothing
    answer = run_child(<<~RUBY)
      History.start
      wait { Memscope.history.series.any? }
      state = lambda do # the least: the sampler opens a file now and then
        Array.new(20) do
          sleep 0.01
          [Dir.children("/proc/self/fd").size, Dir.children("/proc/self/task").size, own_threads]
        end.min
      end
      before = state.call
      children = Array.new(100) { fork { Process.wait(fork { exit! }) } }
      statuses = children.map { |pid| Process.wait2(pid).last.success? }
      puts JSON.generate([before, state.call, statuses.uniq, Memscope.history.events.size])
    RUBY

    assert_equal answer[0], answer[1]
    assert_equal [[true], 101], answer.drop(2)
  end

  def test_a_failure_is_reported_once
    ran = ChildProcess.run(<<~RUBY, requires: %w[json memscope])
      #{PREPARE}
      Memscope::Snapshot.define_singleton_method(:read) { raise IOError, "no more files" }
      3.times { |at| step(at * 10) }
      puts JSON.generate(SAMPLER.reasons)
    RUBY

    assert_equal "a sample failed: no more files (IOError)", ran.json["failed"]
    assert_equal ["memscope: history: a sample failed: no more files (IOError)\n"], ran.err.lines
  end

  def test_what_starts_it
    script = "puts Memscope::History.running?"
    ran = { nil => "", "1" => "", "0" => "", "maybe" => /MEMSCOPE_HISTORY: given "maybe", allowed/ }.map do |value, err|
      ran = ChildProcess.run(script, requires: %w[memscope], env: { "MEMSCOPE_HISTORY" => value })

      assert_match err, ran.err
      ran.out.strip
    end
    watched = child_json("Memscope::Workers.watch\nputs Memscope::History.running?.to_json", requires: ["json"])
    off = child_json("Memscope.configure { |c| c.history = false }\nMemscope::Workers.watch\n" \
                     "puts Memscope::History.running?.to_json", requires: ["json"])

    assert_equal [%w[false true false false], true, false], [ran, watched, off]
  end

  def test_another_process_asks
    Dir.mktmpdir do |directory|
      path = File.join(File.realpath(directory), "memscope", "socket")
      Dir.mkdir(File.dirname(path), 0o700)
      series = run_child(<<~RUBY)
        Memscope.listen(path: #{path.inspect})
        History.start
        wait { Memscope.history.series.any? }
        child = fork { puts Memscope::Client.at(#{path.inspect}).call(:history).series.to_json }
        Process.wait(child)
      RUBY

      assert_includes series, "rss"
    end
  end
end
