# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/copying"
require "tmpdir"

class CopyTest < MemscopeTest
  include Copying

  PROCESS_ITSELF = /\Aonly process \d+ itself can tell which pages it shares \(memscope attach --pid \d+\)\z/

  # Every reading that a process that listens would give, of this process.
  { allocator: {}, snapshot: {}, ledger: {}, arenas: {}, size_classes: {}, fragmentation: {}, mappings: {},
    ruby_heap: { collect: true }, census: { gc: true }, heap_graph: { top: 5, paths_to: "Class", strings: true },
    process_memory: {}, cgroup: {}, lint: {}, doctor: {} }.each do |name, options|
    define_method("test_#{name}") do
      skip_under_sanitizer
      reading = with_copy { |copy| copy.call(name, **options) }

      assert_instance_of Memscope.const_get(Memscope::Calls::CALLS[name].type), reading
      assert_equal [Process.pid, RUBY_VERSION, Memscope::VERSION, Memscope.allocator.process, 3000],
                   [reading.pid, reading.ruby, reading.memscope, reading.process, reading.cost.gvl_us]
      refute reading.reasons.key?(:extension)
    end
  end

  def test_a_ledger_with_all_its_options
    skip_under_sanitizer
    ledger = with_copy { |copy| copy.call(:ledger, deep: true, shared: true, garbage: true, gc: true) }

    assert_operator ledger.garbage_bytes, :>=, 0
    assert_operator ledger.collected.pause_us, :positive?
    assert_nil ledger.collected.returned_bytes, "the process itself was not collected"
    assert_match PROCESS_ITSELF, ledger.reasons[:shared]
    assert_nil ledger.private_bytes
  end

  def test_a_heap_graph_is_made_in_the_copy
    skip_under_sanitizer
    with_copy { |copy| copy.call(:heap_graph, top: 3) }

    assert_equal ["::Memscope.const_get(:Native).heap_graph(3, nil, nil, false, true, 60000)"], @tracer.expressions
  end

  # Text of the command line becomes no code.
  def test_a_name_is_quoted
    skip_under_sanitizer
    graph = with_copy { |copy| copy.call(:heap_graph, paths_to: "\#{exit!}\"é") }

    assert_includes @tracer.expressions.last, '"\#{exit!}\"\u00E9"'
    assert_equal 0, graph.target_count
  end

  def test_private_pages_are_unknown
    skip_under_sanitizer
    census = with_copy { |copy| copy.call(:census, private: true) }

    assert_match PROCESS_ITSELF, census.reasons[:total_count]
    assert_nil census.total_count
  end

  # What this process keeps, or could look up, is not said of another.
  def test_a_diagnosis_is_of_the_other_process_alone
    skip_under_sanitizer
    evidence = with_copy { |copy| copy.call(:doctor).evidence }

    assert_equal [nil] * 4, [evidence.verdict, evidence.objects, evidence.mappers, evidence.second_snapshot]
    assert_operator evidence.process_memory.uss_bytes, :positive?
    assert_nil Memscope::Runtime.current.severities
  end

  def test_a_dump_is_written_here
    Dir.mktmpdir do |directory|
      path = File.join(directory, "heap.pftrace")
      dump = with_copy(writes: ["one ", "two"]) { |copy| copy.call(:dump, path: path, format: "perfetto") }

      assert_equal [path, :perfetto, 3000], [dump.path, dump.format, dump.cost.gvl_us]
      assert_equal ["one two", 0o600], [File.read(path), File.stat(path).mode & 0o777]
      assert_match(/\.dump\(#{FakeTracer::NOWHERE.fileno}, 0, \d, false, 60000\)\z/, @tracer.expressions.last)
    end
  end

  def test_a_dump_that_fails_leaves_no_file
    Dir.mktmpdir do |directory|
      path = File.join(directory, "heap.pftrace")
      assert_failed("the tracer of process #{Process.pid} has ended. The process itself goes on",
                    writes: ["one"], ends: /dump/) { |copy| copy.call(:dump, path: path) }

      assert_empty Dir.children(directory)
    end
  end

  def test_calls_that_need_the_process_itself
    %i[purge tags history verdict workers malloc_profile_start object_profile_state].each do |name|
      assert_failed("#{name} needs process #{Process.pid} itself, not a copy: run memscope attach --pid " \
                    "#{Process.pid}") { |copy| copy.call(name) }
    end
  end

  def test_calls_and_options_that_there_are_not
    with_copy do |copy|
      assert_match(/\AMemscope::Copy#call: call: given :rent, allowed: allocator, /,
                   assert_raises(Memscope::Invalid) { copy.call(:rent) }.message)
      assert_match(/\Aledger: an option: given :deeper, allowed: deep, /,
                   assert_raises(Memscope::Invalid) { copy.call(:ledger, deeper: true) }.message)
      assert_raises(Memscope::Invalid) { copy.call(:heap_graph, top: 0) }
    end
  end

  # Whatever the copy answers, no reading has it without a check.
  { "null" => /: (?:NoMethodError|TypeError)/, "[]" => "does not understand", "7" => "does not understand",
    '{":rss_bytes":":x"}' => "does not understand", '"7"' => "a text without its type", "[" => "is not JSON",
    '{":reasons":{":x":":no_such_reason"},":cost":{":tier":":T2",":wall_us":1,":gvl_us":1,":scratch_bytes":1}}' =>
      "has no text no_such_reason",
    '{":reasons":{},":cost":{":tier":":T9",":wall_us":1,":gvl_us":1,":scratch_bytes":1}}' => "cost.tier: given",
    '{":reasons":{},":pss_bytes":1e999,":cost":null}' => "does not understand",
    "#{'[' * 200}#{']' * 200}" => "is not JSON" }.each_with_index do |(answer, message), number|
    define_method("test_an_answer_that_is_none_#{number}") do
      assert_failed(message, answers: FakeTracer.message(:value, answer)) { |copy| copy.call(:snapshot) }
    end
  end

  def test_the_kernels_files_are_read_by_this_process
    memory, cgroup = with_copy { |copy| %i[process_memory cgroup].map { |name| copy.call(name) } }

    assert_empty @tracer.expressions
    assert_equal [Memscope.cgroup.path, true], [cgroup.path, memory.rss_bytes.positive?]
  end

  def test_what_it_cost
    text = nil
    copy = with_copy { |open| open.tap { text = open.close && open.to_s } }
    copy.close

    assert_equal "taken from outside: paused 3.0 ms, child 2.2 s; memscope was loaded, but did not listen", text
  end

  def test_a_refusal_is_one_sentence
    assert_refused("process 7 is being traced already, by process 9 (gdb): try again when that has ended",
                   "traced\n7\n9\ngdb\n")
    assert_refused("a copy would stop process 7 for about 640 ms, and may take 1200 MiB: --pause allows that",
                   "pause\n7\n640\n1200")
    assert_refused("process ? has ended", "ended")
    assert_refused("process 4711 cannot be copied: unheard of", "unheard of\n4711")
  end

  def test_a_process_that_rests_from_a_copy_is_waited_for
    now = 0
    error = Memscope::Clock.stub(:now, -> { now += 0.2 }) { refused("busy\n4711") }

    assert_match(/\Aprocess 4711 is being copied by another memscope, or was copied a moment ago: /, error.message)
    assert_operator now, :>=, Memscope::Copy::PATIENCE
    assert_operator @tracer.calls.size, :>, 1
  end

  # The kernel does not tell why it denies a trace.
  def test_whoever_may_not_trace_it_learns_why
    { other_user: /\Aprocess \d+ is another user's: /, yama: /because of kernel.yama.ptrace_scope: run memscope as/,
      possible: /may not be traced \(Permission denied\): / }.each do |reason, message|
      Memscope::ExternalProcess.stub(:copying, reason) do
        assert_refused(message, "denied\n4711\nPermission denied")
      end
    end
  end

  def test_the_limits_of_a_pause
    tracers = [false, true].map do |long|
      with_copy(long_pause: long) { nil }
      @tracer.calls
    end

    own = File.realpath(Memscope::Copy::Extension.own)

    assert_equal [[[Process.pid, own, 200, 120_000, false, 0, nil]],
                  [[Process.pid, own, 60_000, 120_000, false, 0, nil]]], tracers
  end

  # The extension for the other Ruby is looked for once it is known.
  def test_a_process_of_another_ruby
    found = ->(pid, ruby) { "/proc/#{pid}/#{ruby}" }
    error = Memscope::Copy::Extension.stub(:of, found) { refused("other_ruby\n4711\n3.2.11") }

    assert_equal "/proc/#{Process.pid}/3.2.11: No such file or directory", error.message
    assert_equal "process 4711 runs Ruby 3.2.11, and this memscope.so is for another: name the one for that Ruby " \
                 "(--so PATH)", refused("other_ruby\n4711\n3.2.11", extension: Memscope::Copy::Extension.own).message
    assert_equal [nil, "3.2"], @tracer.calls.map(&:last)
  end

  private

  def assert_failed(message, ...)
    error = assert_raises(Memscope::Client::Failed) { with_copy(...) }

    message.is_a?(Regexp) ? assert_match(message, error.message) : assert_includes(error.message, message)

    refute_includes error.message, "\n"
  end

  def assert_refused(message, refusal)
    error = refused(refusal)

    assert_operator message, :===, error.message
    assert_equal :silent, error.why
  end

  def refused(refusal, **options)
    assert_raises(Memscope::Client::Unreachable) { with_copy(refusal: refusal, **options) { nil } }
  end
end
