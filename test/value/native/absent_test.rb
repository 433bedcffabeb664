# frozen_string_literal: true

require_relative "../../test_helper"

# What answers if the extension cannot be loaded.
class NativeAbsentTest < MemscopeTest
  # Hides the extension, as if its directory were not on the load path.
  WITHOUT_EXTENSION = <<~RUBY
    $LOAD_PATH.unshift(*ARGV)
    def require(feature) = feature == "memscope/memscope.so" ? raise(LoadError, "cannot load it") : super
    require "memscope"
  RUBY

  def without_extension(script)
    ChildProcess.run("#{WITHOUT_EXTENSION}\n#{script}")
  end

  # Another process cannot be asked in a copy either.
  def test_another_process_that_does_not_listen
    ran = without_extension(<<~RUBY)
      require "memscope/cli/cli"
      other = IO.popen(%w[sleep 60])
      def (Memscope::Client).ruby?(_pid) = true
      puts Memscope::CLI.run(["heap", "--pid", other.pid.to_s], err: $stdout)
      Process.kill(:KILL, other.pid)
    RUBY

    assert_equal "memscope heap: memscope's extension could not be loaded: cannot load it\n74\n", ran.out
  end

  def test_without_the_extension_nothing_breaks
    ran = without_extension(<<~RUBY)
      calls = %i[allocator snapshot ledger ruby_heap process_memory cgroup census heap_graph]
      readings = [*calls.map { |call| Memscope.public_send(call) }, Memscope::HeapGraph.read(IO::NULL),
                  Memscope::HeapGraph.growth(IO::NULL, IO::NULL)]
      require "json"
      readings.each do |reading|
        puts reading.reasons[:extension]
        abort reading.inspect unless reading.class.from_h(JSON.parse(reading.to_json)) == reading
      end
      verdict = Memscope.verdict
      abort verdict.inspect unless Memscope::Verdict.from_json(verdict.to_json) == verdict
      checks = Memscope.doctor.checked.reject { |check| check.outcome == :unknown }
      abort checks.inspect if checks.any?
      p Memscope.rss, Memscope.supported?, readings[2].source, readings[2].rss_bytes, readings[2].unattributed_bytes
      Memscope.report
    RUBY

    assert_predicate ran, :success?, ran
    assert_equal ["memscope's extension could not be loaded: cannot load it\n"] * 10, ran.out.lines.first(10)
    assert_equal %W[nil\n false\n :none\n nil\n nil\n], ran.out.lines[10, 5]
    assert_includes ran.out, "extension: memscope's extension could not be loaded: cannot load it"
  end

  # Pages and other processes make these calls.
  def test_without_the_extension_each_call_is_answered
    ran = without_extension(<<~RUBY)
      require "json"
      Memscope::Listener
      calls = Memscope.const_get(:Calls)
      (calls::CALLS.keys - [:dump]).each do |name|
        options = name.end_with?("_profile_start") ? { seconds: 1 } : {}
        answer = JSON.parse(calls.answer(JSON.generate(call: name, options: options)))
        puts "\#{name}: \#{answer["error"]}" unless ["Memscope::Unavailable", nil].include?(answer["kind"])
      end
    RUBY

    assert_predicate ran, :success?, ran
    assert_empty ran.out
  end

  def test_another_ruby_is_named
    ran = ChildProcess.run(<<~RUBY)
      RUBY_ENGINE.replace("jruby") rescue Object.const_set(:RUBY_ENGINE, "jruby")
      #{WITHOUT_EXTENSION}
      puts Memscope.unsupported_reason
    RUBY

    assert_match(/\Amemscope's extension is written for CRuby; this is jruby \S+\n\z/, ran.out)
  end
end
