# frozen_string_literal: true

require_relative "../support/copies"
require_relative "../test_helper"
require "tempfile"

# A copy of a process with busy and sleeping threads answers about that process, and hands the GVL to none of them: a
# futex call, which that takes, kills it.
class CopyBindingTest < MemscopeTest
  parallelize_me!

  HELD = 500
  SIGSYS = 31
  # Bytes that Host.in_copy maps.
  MAPPED = 16 << 20

  PRELUDE = <<~RUBY.freeze
    class Order; end

    ready = Thread::Queue.new
    3.times { Thread.new { loop { Array.new(10) { "busy" } } } }
    Thread.new { orders = Array.new(#{HELD}) { Order.new }; ready << true; sleep; orders }
    2.times { Thread.new { ready << true; sleep } }
    3.times { ready.pop }
  RUBY

  # What the readings of a report, a census, a heap graph, a dump and a diagnosis call.
  CALLS = {
    allocator: "allocator", settings: "allocator_settings", inputs: "allocator_inputs",
    preload: "environment_at_load('LD_PRELOAD')", snapshot: "snapshot(true)",
    ledger: "ledger(true, true, true, false)", blocks: "object_blocks(true, false)", arenas: "arenas(true)",
    classes: "size_classes(nil, true)", mappings: "mappings", memory: "process_memory('self')",
    cgroup: "cgroup('self', '/proc', '/sys/fs/cgroup')", heap: "ruby_heap(true, true, 0)",
    bounded_heap: "ruby_heap(false, false, 10_000)", census: "census(true, 0, '')",
    whole_census: "census(false, nil, '')", graph: "heap_graph(10, :name, 'Order', true, false, 1000)",
    graph_here: "heap_graph(10, nil, nil, false, true, 1000)", pause: "gc_pause_ms", levers: "levers",
    awaited: "await_gc", collected: "collect_garbage", inflation: "profile_inflation"
  }.freeze

  both_allocators "each call answers about the process", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    copy = asked(CALLS.values, preload: preload)
    found = CALLS.keys.zip(copy.answers).to_h

    assert_the_process_described found, copy.rss
    assert_equal preload ? :jemalloc : :glibc, found[:allocator][:name]
    assert_equal [preload], [found[:preload]]
    assert_objects_found found
    assert_all_done_in_the_process found
  end

  both_allocators "rows sum to the RSS of the process" do |preload|
    skip_under_sanitizer
    copy = asked(["ledger(true, false, false, false)", "mappings"], preload: preload)
    ledger, mappings = copy.answers

    assert_equal copy.rss, ledger[:rss_bytes]
    assert_equal(copy.rss, ledger[:rows].sum { |row| row[:bytes] })
    assert_equal(copy.rss, mappings[:mappings].sum { |mapping| mapping[:resident_bytes] })
    refute_includes mappings[:mappings].map { |mapping| mapping[:name] }, Copies::EXTENSION
  end

  # Else it would count as the copy's own, which is in the same place. A block that malloc maps in the copy may be there
  # too, and count as malloc's.
  both_allocators "memory that the process maps while its copy lives is unattributed" do |preload|
    skip_under_sanitizer
    rows = asked(["ledger(true, false, false, false)"], preload: preload).answers.first[:rows]
    bytes = rows.to_h { |row| row.values_at(:id, :bytes) }

    assert_equal 0, bytes[:memscope]
    assert_includes (MAPPED - (1 << 20))..(MAPPED + (1 << 20)), bytes[:unattributed]
  end

  both_allocators "objects held only by the stack of another thread have a path", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    graph = asked(["heap_graph(10, :name, 'Order', false, false, 1000)"], preload: preload).answers.first

    assert_equal [HELD, 0], graph.values_at(:target_count, :unreachable_target_count), graph[:reasons]
    assert_equal(%w[Thread Array Order], graph[:paths].first[:steps].last(3).map { |step| step[:name] })
  end

  # The copy shares all pages with the process.
  def test_private_memory_is_unknown
    skip_under_sanitizer
    memory, ledger = asked(["process_memory('self')", "ledger(false, true, false, false)"]).answers

    assert_nil memory[:uss_bytes]
    assert_equal [:unread, "/proc/self/smaps_rollup", :shared], memory[:reasons][:uss_bytes]
    assert_equal [:unread, "/proc/self/pagemap", :shared], ledger[:reasons][:shared]
  end

  def test_what_would_hand_over_the_gvl_is_noticed
    skip_under_sanitizer
    ["Thread.pass", "sleep 0.001"].each do |expression|
      copy = Copies.ask(PRELUDE, ["1", expression, "2"])

      assert_equal [[1], SIGSYS], [copy.answers, copy.status], expression
    end
  end

  # A finalizer of the process would act on the process's files.
  def test_a_collection_in_a_copy_runs_no_finalizer
    skip_under_sanitizer
    script = <<~RUBY
      GC.disable
      process = Process.pid
      finalizer = proc { Thread.pass if Process.ppid == process }
      1_000.times { ObjectSpace.define_finalizer(Object.new, finalizer) }
      class Garbage; end
      1_000.times { Garbage.new }
    RUBY

    assert_equal SIGSYS, Copies.ask(PRELUDE + script, ["GC.start"]).status
    copy = asked(["collect_garbage", "census(true, nil, '')", "ruby_heap(true, false, nil)"], script: script)
    garbage = copy.answers[1][:classes].find { |row| row[:name] == "Garbage" }

    assert_operator garbage ? garbage[:count] : 0, :<, 10
    assert copy.answers[2][:gc_disabled]
  end

  def test_a_method_that_the_process_overrides_is_not_called
    skip_under_sanitizer
    graph = asked(["heap_graph(10, :name, 'Order', false, false, 1000)"], script: <<~RUBY).answers.first
      class Own < Thread
        %i[name to_s keys [] thread_variables].each { |name| define_method(name) { |*| Thread.pass } }
      end
      Own.new { sleep }
    RUBY

    assert_equal HELD, graph[:target_count]
  end

  def test_a_dump_is_written_to_a_descriptor
    skip_under_sanitizer
    Tempfile.create do |file|
      dump = asked(["dump(101, 2, 1, true, 1000)"], file: file.path).answers.first
      lines = File.readlines(file.path)

      assert_equal [File.size(file.path), nil, nil], dump.values_at(:bytes, :pause_ms, :child_bytes)
      assert_equal(dump[:objects], lines.count { |line| JSON.parse(line).key?("address") })
    end
  end

  def test_an_expression_that_raises_does_not_end_the_copy
    skip_under_sanitizer
    copy = Copies.ask(PRELUDE, ["raise IOError, 'why'", "exit", "3"])

    assert_equal [["IOError: why", "SystemExit: exit", 3], 0], [copy.answers, copy.status]
  end

  def test_nothing_is_left_in_the_process
    skip_under_sanitizer
    copy = asked(["ledger(false, false, false, false)"], after: <<~RUBY)
      warn defined?(Memscope).inspect, File.read("/proc/self/maps").scan("memscope.so").inspect
    RUBY

    assert_equal "nil\n[]\n", copy.err
  end

  private

  def asked(calls, script: "", **options)
    copy = Copies.ask(PRELUDE + script, calls.map { |call| "#{Copies::NATIVE}.#{call}" }, **options)

    assert_equal [0, calls.size], [copy.status, copy.answers.size], copy.answers.last
    assert_empty copy.answers.grep(String).grep(/Error/)
    copy
  end

  def assert_the_process_described(found, rss)
    %i[snapshot ledger mappings memory].each { |name| assert_equal rss, found[name][:rss_bytes], name }

    assert_equal rss, found[:blocks][:ledger][:rss_bytes]
    assert_equal(rss, found[:ledger][:rows].sum { |row| row[:bytes] })
    assert_equal Memscope.cgroup.path, found[:cgroup][:path]
  end

  def assert_objects_found(found)
    %i[census whole_census].each do |name|
      assert_equal HELD, found[name][:classes].find { |row| row[:name] == "Order" }&.fetch(:count), name
    end

    assert_equal HELD, found[:graph][:target_count]
    assert_operator found[:graph_here][:reachable_count], :>, HELD
    assert_operator found[:blocks][:all][:block_bytes], :>, 0
  end

  def assert_all_done_in_the_process(found)
    %i[census whole_census graph graph_here heap bounded_heap].each do |name|
      assert_equal :process, found[name][:walked_in], name
    end

    assert_equal :process, found[:blocks][:ruby_heap][:walked_in]
  end
end
