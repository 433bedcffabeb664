# frozen_string_literal: true

require_relative "../test_helper"

# A forked child that reads itself must not get private copies of what it shares with its parent.
#
# MEMSCOPE_HEAPS=512,2048 (MiB) is `rake battery:fork`, which has the machine for itself: only there does MemAvailable
# say what a child took.
class CopyOnWriteTest < MemscopeTest
  HEAPS = ENV.fetch("MEMSCOPE_HEAPS", "128").split(",").map { |size| Integer(size) }
  ALONE = ENV.key?("MEMSCOPE_HEAPS")
  NOBODY = 65_534
  KIB = 1024
  USS_LIMIT = 2 * KIB
  # Of the heap: other processes take and return some meanwhile.
  AVAILABLE_LIMIT = 0.25

  READINGS = {
    "ledger" => "Memscope.ledger",
    "deep ledger" => "Memscope.ledger(deep: true)",
    "ledger of sharing" => "Memscope.ledger(shared: true)",
    "ledger of objects" => "Memscope.ledger(objects: true)",
    "dry run" => "Memscope.purge(dry_run: true)",
    "doctor" => "Memscope.doctor",
    "arenas" => "Memscope.arenas.to_a",
    "mappings" => "Memscope.mappings.to_a"
  }.freeze

  # A heap of `mebibytes` with free blocks among those in use, then a child for each reading. A child has memory of its
  # own for the objects that a reading makes.
  CHILDREN = <<~'RUBY'
    require "json"

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

    # The growth in one child, and what its block answers.
    def in_child
      reader, writer = IO.pipe
      pid = fork do
        make_room
        2.times { uss_kib && available_kib }
        before = [uss_kib, available_kib]
        answer = yield
        writer.puts JSON.generate(uss: uss_kib - before[0], available: before[1] - available_kib, answer: answer)
        exit!(0)
      end
      writer.close
      Process.wait(pid)
      JSON.parse(reader.read)
    end
  RUBY

  HEAPS.each do |mebibytes|
    both_allocators "a child of #{mebibytes} MiB" do |preload|
      skip_under_sanitizer
      children = child_json(<<~RUBY, preload: preload, timeout: 600)
        #{CHILDREN}
        readings = { "nothing" => -> {}, #{READINGS.map { |name, code| "#{name.dump} => -> { #{code} }" }.join(', ')} }
        grow_heap(#{mebibytes})
        3.times { readings.each_value(&:call) }
        GC.start
        puts JSON.generate(readings.transform_values { |reading| in_child { reading.call && nil } })
      RUBY

      assert_empty children.select { |_, child| child["uss"] > USS_LIMIT }, "KiB that became private"
      next unless ALONE

      assert_empty children.select { |_, child| child["available"] > AVAILABLE_LIMIT * mebibytes * KIB }, "KiB"
    end
  end

  # It may open neither /proc/self/mem nor /proc/self/pagemap.
  both_allocators "a child that gave up root" do |preload|
    skip_under_sanitizer
    skip "only root can become someone else" unless Process.uid.zero?
    children = child_json(<<~RUBY, preload: preload)
      #{CHILDREN}
      readings = { ledger: -> { Memscope.ledger(deep: true).reasons }, dry_run: -> { Memscope.purge(dry_run: true) && nil },
                   doctor: -> { Memscope.doctor && nil } }
      grow_heap(64)
      3.times { readings.each_value(&:call) }
      GC.start
      puts JSON.generate(readings.transform_values { |reading| in_child { Process::Sys.setuid(#{NOBODY}); reading.call } })
    RUBY

    assert_empty children.select { |_, child| child["uss"] > USS_LIMIT }, "KiB that became private"
    assert_match(%r{/proc/self/pagemap: refused by the kernel}, children.dig("ledger", "answer", "source"))
    refute_includes children.dig("ledger", "answer"), "own_memory"
  end
end
