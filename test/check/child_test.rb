# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../../lib/memscope/check/check"

# The forked child leaves this process as it was, and cannot make it hang.
class CheckChildTest < MemscopeTest
  parallelize_me!

  Failed = Memscope::Check::Failed
  KeepsABlock = Class.new(StandardError) { def initialize(text) = super.tap { @block = proc {} } }
  Secret = Class.new { def marshal_dump = raise(NotImplementedError, "secrets stay here") }
  KeepsASecret = Class.new(StandardError) { def initialize(text) = super.tap { @secret = Secret.new } }

  def test_an_error_of_the_block_is_raised_as_it_was
    error = assert_raises(KeyError) { check { {}.fetch(:missing) } }

    assert_equal "key not found: :missing", error.message
    assert_match(/#{__FILE__}:#{__LINE__ - 3}/, error.backtrace.first(2).join)
  end

  def test_a_failed_assertion_in_the_block_is_one_of_this_test
    error = assert_raises(Minitest::Assertion) { check { assert_equal 1, 2 } }

    assert_match(/Expected: 1/, error.message)
    assert_raises(Minitest::Skip) { check { skip "not here" } }
  end

  def test_an_error_that_cannot_be_copied_is_described
    error = assert_raises(RuntimeError) { check { raise KeepsABlock, "kept" } }

    assert_equal "CheckChildTest::KeepsABlock: kept", error.message

    error = assert_raises(RuntimeError) { check { raise KeepsASecret, "kept" } }

    assert_equal "CheckChildTest::KeepsASecret: kept", error.message

    late = -> { self.class.const_set(:Late, Class.new(StandardError)) }
    error = assert_raises(RuntimeError) { check { raise late.call, "late" } }

    assert_equal "CheckChildTest::Late: late", error.message
  end

  def test_a_process_that_the_block_forks_does_not_delay_the_answer
    read, write = IO.pipe
    since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    forked = false
    Memscope::Check.run(deadline: 60) do
      next if forked

      forked = true
      write.puts(fork { sleep })
    end

    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - since, :<, 50
  ensure
    Process.kill(:KILL, Integer(read.gets))
    [read, write].each(&:close)
  end

  def test_a_block_that_is_left_early_is_no_answer
    left = /left by break, return or throw/

    assert_match(left, assert_raises(Failed) { check { break } }.message)
    assert_match(left, assert_raises(Failed) { catch(:out) { check { throw :out } } }.message)
    assert_match(left, assert_raises(Failed) { returning }.message)
  end

  def test_a_child_that_ends_is_no_answer
    assert_match(/child ended: exit 3/, assert_raises(Failed) { check { exit!(3) } }.message)
    %i[TERM KILL].each do |signal|
      ended = assert_raises(Failed) { check { Process.kill(signal, Process.pid) && sleep } }

      assert_match(/child ended: SIG#{signal}/, ended.message)
    end
  end

  # On a busy machine, the first may end before it has come to the block.
  def test_a_child_that_hangs_is_ended
    pid = nil
    Dir.mktmpdir do |directory|
      path = File.join(directory, "pid")
      [2, 10, 60].each do |seconds|
        error = assert_raises(Failed) { check(deadline: seconds) { File.write(path, Process.pid) && sleep } }

        assert_match(/no answer within #{seconds} s.*in: :process.*deadline:/, error.message)
        break if File.size?(path)
      end
      pid = Integer(File.read(path))
    end

    assert_raises(Errno::ESRCH) { Process.kill(0, pid) }
  end

  # Each would be seen twice if the child wrote buffers, ran handlers, or shared objects.
  def test_this_process_goes_on_as_it_was
    ran = ChildProcess.run(<<~'RUBY', requires: %w[json tempfile memscope])
      at_exit { puts "bye from #{$$ == PARENT ? 'the parent' : 'a child'}" }
      PARENT = $$
      trap(:CHLD) { CHILDREN << 1 }
      CHILDREN = []
      file = Tempfile.new
      file.write("once\n")
      unreachable = File.open("#{file.path}.2", "w")
      unreachable.write("once\n")
      unreachable = nil
      print "buffered "
      reader, writer = IO.pipe
      calls = 0
      Memscope::Check.run { calls += 1; file.write("never\n"); Array.new(100) { "garbage" } }
      file.flush
      writer.close
      puts "calls #{calls}, read #{reader.read.inspect}, #{File.read(file.path).inspect}, " \
           "#{File.read("#{file.path}.2").inspect}, children #{Process.wait rescue $!.class}"
      File.delete("#{file.path}.2")
    RUBY

    assert_equal "buffered calls 0, read \"\", \"once\\n\", \"once\\n\", children Errno::ECHILD\nbye from the parent\n",
                 ran.out, ran
    assert_empty ran.err
  end

  # A child that inherited another check's pipe would keep that check waiting: here for ever, since the first one ends
  # after all others.
  def test_checks_in_parallel_threads_do_not_wait_for_each_other
    grows = Dir.mktmpdir do |directory|
      child_json(<<~RUBY, requires: %w[json memscope])
        KEPT = []
        path = #{File.join(directory, 'others').inspect}
        waits = -> { sleep 0.01 until File.exist?(path) }
        leaks, healthy = -> { KEPT << Object.new }, -> { Object.new }
        first, *others = [waits, leaks, healthy, leaks, healthy].map do |block|
          Thread.new { Memscope::Check.run(iterations: 20, deadline: 150, &block).grows? }
        end
        found = others.map(&:value)
        File.write(path, "")
        puts JSON.generate([first.value, *found])
      RUBY
    end

    assert_equal [false, true, false, true, false], grows
  end

  private

  def check(**options, &) = Memscope::Check.run(iterations: 10, **options, &)

  def returning
    check { return }
  end
end
