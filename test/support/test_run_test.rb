# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"

# test/support/run.rb, in a process of its own: its output for files that pass, skip, fail, crash and do not load.
class TestRunTest < MemscopeTest
  PASSES = "require %(minitest/autorun)\nclass Passes < Minitest::Test; def test_it = pass; end\n"
  FAILS = "#{PASSES}class Fails < Minitest::Test\n  def test_it = assert_equal(1, 2)\nend\n".freeze
  SKIPS = "#{PASSES}class Skips < Minitest::Test; def test_it = skip(%(no reason)); end\n".freeze
  ENDS = "#{PASSES}class Ends < Minitest::Test; def test_it = Process.kill(:KILL, $$); end\n".freeze
  # Half a second of processor time, in a child.
  WORKS = <<~RUBY.freeze
    #{PASSES}
    class Works < Minitest::Test
      SCRIPT = "nil until Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) > 0.5"
      def test_it = assert(system(RbConfig.ruby, "--disable-gems", "-e", SCRIPT))
    end
  RUBY
  RAISES = "raise %(not loaded)"

  def test_what_passes
    result, text = run_files("a" => PASSES, "b" => SKIPS)

    assert_predicate result, :success?
    assert_match(%r{^\[  1/2\] +\d+\.\d s, CPU +\d+\.\d s  \S+_test\.rb: 1 passed, 0 failed}, text)
    assert_match(/^1 skipped: no reason$/, text)
    assert_equal "2 passed, 0 failed, 1 skipped", text.lines.last.chomp
  end

  def test_the_time_of_the_processor_is_that_of_all_processes
    _result, text = run_files("a" => WORKS)

    assert_includes 0.5..5.0, text[/CPU +(\d+\.\d) s/, 1].to_f
  end

  def test_what_fails
    result, text = run_files("a" => FAILS, "b" => ENDS, "c" => RAISES, "d" => PASSES)

    refute_predicate result, :success?
    assert_match(/^ +FAILED: Fails#test_it$/, text)
    assert_match(/^Failure:\nFails#test_it \[.*a_test\.rb:4\]:\nExpected: 1\n +Actual: 2$/, text)
    assert_match(/b_test\.rb: pid \d+ SIGKILL \(signal 9\); in Ends#test_it/, text)
    assert_match(/not loaded \(RuntimeError\)/, text)
    assert_match(/^\d+ passed, 3 failed$/, text.lines.last)
  end

  def test_no_test_is_no_success
    result, text = run_files("a" => "require %(minitest/autorun)")

    refute_predicate result, :success?
    assert_equal "0 passed, 0 failed", text.lines.last.chomp
  end

  private

  # @param sources [Hash{String => String}]
  def run_files(sources)
    minitest = File.dirname($LOADED_FEATURES.grep(%r{/minitest\.rb\z}).first)
    Dir.mktmpdir do |directory|
      files = sources.map do |name, source|
        "#{directory}/#{name}_test.rb".tap { |path| File.write(path, source) }
      end
      result = ChildProcess.run_command(*ChildProcess.ruby, "-I#{minitest}", "#{__dir__}/run.rb", *files)
      [result, result.out]
    end
  end
end
