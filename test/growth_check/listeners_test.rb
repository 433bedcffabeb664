# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"

# What other processes have alive and in use is counted by their listeners, as they would count it themselves.
class GrowthCheckListenersTest < MemscopeTest
  include Listening

  Listeners = Memscope::GrowthCheck.const_get(:Listeners)
  LEAKED = "class Leaked; end; KEPT = Array.new(300) { Leaked.new }"
  # Takes blocks of malloc, and 50 objects that stay; then makes garbage.
  BLOCKS = 20_000
  GROW = "Leaks.leak(64, #{BLOCKS}, :here); 50.times { KEPT << Leaked.new }; 500.times { Leaked.new }; 1".freeze
  # Bytes of a block, as each allocator counts it.
  BYTES = { nil => 80, "libjemalloc.so.2" => 64 }.freeze

  both_allocators "two processes" do |preload|
    skip_under_sanitizer
    processes = Array.new(2) { listening(LEAKED, preload: preload, requires: %w[memscope memscope_test]) }
    listeners = Listeners.new(processes.map { |process| client(process) }, gc: true)
    3.times { listeners.read }
    before = listeners.read
    processes.first.tell(GROW)
    processes.first.gets
    after = listeners.read

    assert_equal([600, 650], [before, after].map { |count| count.objects.fetch("Leaked") })
    assert_in_delta BLOCKS, after.blocks - before.blocks, BLOCKS / 20 # what jemalloc keeps for threads counts, too
    assert_in_delta BLOCKS * BYTES.fetch(preload), after.malloc_bytes - before.malloc_bytes, BLOCKS * 4
    assert_in_delta rss(processes), after.rss_bytes, 1 << 20
    slots(after).then { |bytes| assert_equal bytes, after.slot_bytes if bytes }
  end

  def test_garbage_counts_without_a_collection
    process = listening("GC.disable; #{LEAKED}", requires: %w[memscope memscope_test])
    listeners = Listeners.new([client(process)], gc: false)
    process.tell(GROW)
    process.gets

    assert_equal 850, listeners.read(malloc: false).objects.fetch("Leaked")
    assert_nil listeners.read(malloc: false).blocks
  end

  def test_a_process_that_cannot_count
    process = listening("RACTOR = Ractor.new { Ractor.receive }")
    error = assert_raises(Memscope::GrowthCheck::Unavailable) { Listeners.new([client(process)], gc: false).read }

    assert_match(/\Aobjects cannot be counted: .*Ractor/, error.message)
  end

  private

  # Since Ruby 3.2, slots have several sizes.
  def slots(count) = RUBY_VERSION < "3.2" ? count.objects.values.sum * GC::INTERNAL_CONSTANTS[:RVALUE_SIZE] : nil

  def rss(processes) = processes.sum { |process| File.read("/proc/#{process.pid}/statm").split[1].to_i * 4096 }
end
