# frozen_string_literal: true

require_relative "../test_helper"

# A forked child that is read must not get private copies of what it shares with its parent, whichever way it is read.
#
# `rake battery:fork` sets MEMSCOPE_HEAPS=512,2048 (MiB) and needs the machine to itself: then each reading has a child
# of its own, and MemAvailable shows how much memory that child took.
class CopyOnWriteTest < MemscopeTest
  HEAPS = ENV.fetch("MEMSCOPE_HEAPS", "32").split(",").map { |size| Integer(size) }
  ALONE = ENV.key?("MEMSCOPE_HEAPS")
  NOBODY = 65_534
  KIB = 1024
  USS_LIMIT = 2 * KIB
  PAGE_USS_LIMIT = 8 * KIB
  # As a share of the heap: other processes take and return memory meanwhile.
  AVAILABLE_LIMIT = 0.25

  CALLS = [
    "rss", "allocator", "snapshot", "snapshot(malloc: true)", "ledger", "ledger(deep: true)", "ledger(shared: true)",
    "ledger(objects: true)", "ledger(strict: true)", "mappings", "arenas", "size_classes", "fragmentation", "ruby_heap",
    "process_memory", "cgroup", "workers", "lint", "doctor", "doctor(since: Memscope.doctor)", "purge(dry_run: true)",
    "tune"
  ].to_h { |call| [call, "Memscope.#{call}"] }.freeze

  # What people and programs see of each reading: text and JSON.
  SEEN = {
    "report" => "Memscope.report(StringIO.new, deep: true)",
    "texts" => "LATEST.each(&:to_s)", "JSON" => "LATEST.each(&:to_json)",
    "differences" => "(Memscope.ledger - LEDGER).to_s", "metrics" => "Memscope::Prometheus.text"
  }.freeze

  READINGS = { **CALLS, **SEEN }.freeze

  # Readings requested by another process, through this one's listener.
  RELAYED = %w[rss allocator snapshot ledger arenas size_classes fragmentation mappings ruby_heap process_memory cgroup
               lint doctor workers].to_h { |call| [call, "ask(:#{call})"] }
                                   .merge("deep ledger" => "ask(:ledger, deep: true, objects: true, shared: true)",
                                          "dry run" => "ask(:purge, dry_run: true)").freeze

  PAGES = %w[/ /ledger.txt /doctor.json /doctor.txt /history /objects /allocator /mappings.json /workers.json /profile
             /metrics].to_h { |path| [path, "page(#{path.dump})"] }.freeze

  # A heap of `mebibytes` with free blocks among those in use, then children that are read. A child has memory of its
  # own for the objects that a reading makes.
  CHILDREN = <<~'RUBY'
    require "json"
    require "stringio"

    TEXT = String.new(capacity: 16_384)

    def kib(path, pattern)
      File.open(path) { |file| file.sysread(16_384, TEXT) }
      sum = 0
      TEXT.scan(pattern) { sum += $1.to_i }
      sum
    end

    def uss_kib = kib("/proc/self/smaps_rollup", /^Private_\w+: +(\d+)/)
    def available_kib = kib("/proc/meminfo", /^MemAvailable: +(\d+)/)

    def grow_heap(mebibytes)
      $strings = Array.new(mebibytes * 820) { |index| "x" * (900 + index % 600) }
      $strings.each_slice(16) { |slice| slice.first.clear }
      GC.start
    end

    def make_room
      Array.new(50_000) { |index| ["y" * (index % 600), { index => index }] }
      GC.start
      GC.disable
    end

    # How much memory each reading unshares in one child, and what the reading returns.
    def in_child(readings)
      reader, writer = IO.pipe
      pid = fork do
        make_room
        2.times { uss_kib && available_kib }
        writer.puts JSON.generate(readings.transform_values { |reading| growth(reading) })
        exit!(0)
      end
      writer.close
      Process.wait(pid)
      JSON.parse(reader.read)
    end

    def growth(reading)
      GC.start
      before = [uss_kib, available_kib]
      answer = reading.call
      after = [uss_kib, available_kib]
      { uss: after[0] - before[0], available: before[1] - after[1], answer: answer }
    end

    def in_children(readings, each) = readings.each_slice(each).map { |slice| in_child(slice.to_h) }.reduce({}, :merge)

    # Warms up: runs each reading here, and lets collections age all objects.
    def warm(readings)
      2.times { readings.each_value(&:call) }
      4.times { GC.start }
    end
  RUBY

  SURFACES = <<~'RUBY'
    require "memscope/web"
    require "rack/mock"
    require "rbconfig"

    Memscope.configure { |c| c.username = c.password = "memory" }
    Memscope.listen

    # Another process, which does not share this one's heap.
    ASKING = <<~'SCRIPT'
      require "json"
      $stdout.sync = true
      $stdin.each_line do |line|
        pid, name, options = JSON.parse(line, symbolize_names: true)
        puts Memscope::Client.new(pid).call(name.to_sym, **options).class
      end
    SCRIPT
    ASKER = IO.popen([RbConfig.ruby, *$LOAD_PATH.map { |path| "-I#{path}" }, "-rmemscope", "-e", ASKING], "r+")

    def ask(name, **options)
      ASKER.puts JSON.generate([Process.pid, name, options])
      ASKER.gets.chomp
    end

    ENVIRONMENT = { "REMOTE_ADDR" => "127.0.0.1", "HTTP_AUTHORIZATION" => "Basic #{["memory:memory"].pack('m0')}" }.freeze

    def page(path)
      response = Rack::MockRequest.new(Memscope::Web).get(path, ENVIRONMENT)
      response.body
      response.status
    end
  RUBY

  def lambdas(readings) = "{ #{readings.map { |name, code| "#{name.dump} => -> { #{code} }" }.join(', ')} }"

  # @param limits [Hash{String => Integer}] limits in KiB that differ from USS_LIMIT, by reading
  def assert_shared(children, mebibytes, limits = {})
    grown = children.select { |name, child| child["uss"] > limits.fetch(name, USS_LIMIT) }

    assert_empty grown, "KiB that became private"
    return unless ALONE

    assert_empty children.select { |_, child| child["available"] > AVAILABLE_LIMIT * mebibytes * KIB }, "KiB"
  end

  HEAPS.each do |mebibytes|
    both_allocators "readings in a child of #{mebibytes} MiB", in_full: [:jemalloc] do |preload|
      skip_under_sanitizer
      children = child_json(<<~RUBY, preload: preload, timeout: 600)
        #{CHILDREN}
        grow_heap(#{mebibytes})
        LEDGER = Memscope.ledger
        LATEST = [LEDGER, #{CALLS.values.grep_v(/rss|since/).join(', ')}]
        readings = #{lambdas(READINGS)}.transform_values { |reading| -> { reading.call && nil } }
        warm(readings)
        writing = -> { $strings.each { |string| string.setbyte(0, 120) unless string.empty? } && nil }
        puts JSON.generate(in_children({ "nothing" => -> {}, **readings, "writing" => writing }, #{ALONE ? 1 : 15}))
      RUBY

      assert_equal ["nothing", *READINGS.keys, "writing"], children.keys
      assert_operator children.delete("writing")["uss"], :>, mebibytes * KIB / 2
      assert_shared children, mebibytes
    end

    both_allocators "surfaces in a child of #{mebibytes} MiB", in_full: [:jemalloc] do |preload|
      skip_under_sanitizer
      children = child_json(<<~RUBY, preload: preload, bundle: true, timeout: 600)
        #{CHILDREN}
        #{SURFACES}
        grow_heap(#{mebibytes})
        readings = #{lambdas({ **RELAYED, **PAGES })}
        warm(readings)
        puts JSON.generate(in_children(readings, #{ALONE ? 1 : 14}))
        $stdout.flush
        exit!(0)
      RUBY

      assert_equal [*RELAYED.keys, *PAGES.keys], children.keys
      assert_equal [200], children.values_at(*PAGES.keys).map { |page| page["answer"] }.uniq
      refute_includes children.values_at(*RELAYED.keys).map { |reading| reading["answer"] }, nil
      assert_shared(children, mebibytes, PAGES.transform_values { PAGE_USS_LIMIT })
    end
  end

  # What ends the sharing of a preloaded heap, and the least share of the heap that becomes private. Before Linux 5.19,
  # being pinned does not end it.
  LOSSES = {
    "nothing" => [0, "nil"],
    "writing to half of the strings" => [0.3, "$strings.first($strings.size / 2).each { |text| touch(text) }"],
    "being pinned" => [0, "$strings.each { |text| Host.pin(text) unless text.empty? }"],
    "compaction" => [0, "GC.compact unless Memscope::Purge.missing[:compact]"],
    "a parent that wrote" => [0.4, "$told.puts; $told.flush; $heard.gets"],
    "its own growth" => [0, "$grown = 'x' * (40 << 20)"],
    "returned and used again" => [0, "Memscope.purge; $grown = Array.new(30_000) { 'x' * 1_000 }"]
  }.freeze

  both_allocators "a worker sees what it no longer shares" do |preload|
    skip_under_sanitizer
    losses = child_json(<<~RUBY, preload: preload, timeout: 300, requires: ["memscope_test"])
      #{CHILDREN}
      require "memscope/remote/workers"
      def touch(text) = text.empty? || text.setbyte(0, 120)
      grow_heap(32)
      Memscope.purge(dry_run: true)
      Memscope::Workers::Reporter.new(role: :worker).read
      4.times { GC.start }
      losses = #{lambdas(LOSSES.transform_values(&:last))}
      puts JSON.generate(losses.to_h do |name, loss|
        reader, writer = IO.pipe
        wanted, $told = IO.pipe
        $heard, heard = IO.pipe
        pid = fork do
          make_room
          sampler = Memscope::Workers::Reporter.new(role: :worker)
          before = [sampler.read.unshared_since_fork_bytes, uss_kib]
          loss.call
          worker = sampler.read
          writer.puts JSON.generate([before[0] / 1024, worker.unshared_since_fork_bytes / 1024, uss_kib - before[1]])
          exit!(0)
        end
        $told.close
        $strings.each_slice(2) { |text, _| touch(text) } if wanted.gets
        heard.puts
        Process.wait(pid)
        [name, JSON.parse(reader.gets)]
      end)
    RUBY
    of_growth = losses.values_at("its own growth", "returned and used again")
    of_loss = losses.except("its own growth", "returned and used again")

    assert(losses.values.all? { |before, _, _| before < 2 * KIB })
    of_loss.each do |name, (before, after, uss)|
      assert_operator after, :>=, LOSSES.fetch(name).first * 32 * KIB
      # The child's own pages that compaction returns, as Ruby 3.2's does, are no loss.
      assert_in_delta [uss, 0].max, after - before, 3 * KIB, name
    end
    of_growth.each { |before, after, _| assert_operator after - before, :<, 16 * KIB }
  end

  # Such a child may open neither /proc/self/mem nor /proc/self/pagemap.
  both_allocators "a child that gave up root", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    skip "only root can become someone else" unless Process.uid.zero?
    children = child_json(<<~RUBY, preload: preload)
      #{CHILDREN}
      readings = { ledger: -> { Memscope.ledger(deep: true).reasons }, dry_run: -> { Memscope.purge(dry_run: true) && nil },
                   doctor: -> { Memscope.doctor && nil } }
      grow_heap(64)
      warm(readings)
      puts JSON.generate(in_child({ "setuid" => -> { Process::Sys.setuid(#{NOBODY}) }, **readings }))
    RUBY

    assert_shared children, 64
    assert_match(%r{/proc/self/pagemap: refused by the kernel}, children.dig("ledger", "answer", "source"))
    refute_includes children.dig("ledger", "answer"), "own_memory"
  end
end
