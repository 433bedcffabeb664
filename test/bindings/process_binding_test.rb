# frozen_string_literal: true

require_relative "../test_helper"
require "etc"
require "tmpdir"

class ProcessBindingTest < MemscopeTest
  MEBIBYTE = 1 << 20

  # The value through a newly opened descriptor. On a busy machine, the counters may differ by a few pages.
  TRUTH = <<~RUBY
    def truth = File.read("/proc/self/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE)
    def true? = (Memscope.rss - truth).abs < 2 << 20
    def statms = Dir["/proc/self/fd/*"].count { |link| (File.readlink(link) rescue "").end_with?("/statm") }
    def grown?
      before = Memscope.rss
      block = "x" * (32 << 20)
      Memscope.rss - before >= 31 << 20 && block.size.positive? && true?
    end
    def in_child
      reader, writer = IO.pipe
      pid = fork { reader.close; writer.write(yield.inspect); writer.close; exit!(0) }
      writer.close
      reader.read.tap { Process.wait(pid) }
    end
  RUBY

  def test_is_the_kernels
    rss = Memscope.rss

    assert_kind_of Integer, rss
    assert_in_delta File.read("/proc/self/statm").split[1].to_i * Etc.sysconf(Etc::SC_PAGESIZE), rss, 2 * MEBIBYTE
  end

  def test_rises_by_what_is_touched
    assert_equal "true", say("grown?")
  end

  def test_right_in_a_child_and_a_grandchild
    assert_equal "true true true", say(<<~RUBY)
      Memscope.rss
      child = in_child { grown? }
      grandchild = in_child { Memscope.rss; in_child { grown? } == "true" && grown? }
      [child, grandchild, true?].join(" ")
    RUBY
  end

  def test_a_child_keeps_one_descriptor
    assert_equal "1 1 1", say("Memscope.rss; [in_child { Memscope.rss; in_child { Memscope.rss; statms } }[/\\d/], " \
                              "in_child { Memscope.rss; statms }, statms].join(\" \")")
  end

  def test_right_after_daemon
    script = <<~RUBY
      Memscope.rss
      path = ENV.fetch("ANSWER")
      Process.daemon(true)
      File.write(path + ".tmp", [grown?, statms].join(" "))
      File.rename(path + ".tmp", path)
    RUBY
    Dir.mktmpdir do |directory|
      answer = File.join(directory, "answer")
      run_script(script, env: { "ANSWER" => answer })
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
      sleep 0.02 until File.exist?(answer) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

      assert_equal "true 1", File.read(answer)
    end
  end

  # The host closes every descriptor but Ruby's own, and reuses the numbers for a file that reads like another
  # process's statm. Not one of the copies may be read or closed.
  def test_right_after_descriptors_were_closed_and_reused
    assert_equal "true true 0 1", say(<<~RUBY, requires: ["tempfile"])
      Memscope.rss
      imposter = Tempfile.create("statm").tap { |file| file.write("1 1 1 1 0 1 0\\n"); file.flush }
      (3..1023).each do |number|
        IO.for_fd(number).close unless number == imposter.fileno
      rescue SystemCallError, ArgumentError
        # not open, or reserved by Ruby
      end
      closed = statms
      copies = Array.new(100) { imposter.dup }
      readings = [true?, true?]
      abort "the descriptor was not closed" unless closed.zero?
      [*readings, copies.count { |copy| copy.pread(5, 0) != "1 1 1" }, statms].join(" ")
    RUBY
  end

  def test_threads_that_read_at_once_keep_one_descriptor
    assert_equal "1", say("32.times.map { Thread.new { 50.times { Memscope.rss } } }.each(&:join); statms")
  end

  def test_in_a_trap_handler
    assert_equal "true", say(<<~RUBY)
      seen = nil
      trap(:USR1) { seen = Memscope.rss }
      Process.kill(:USR1, Process.pid)
      sleep 0.01 until seen
      seen.positive?
    RUBY
  end

  def test_nil_where_there_is_no_proc
    skip "chroot needs root" unless Process.uid.zero?

    assert_equal "[nil, nil]", say(<<~RUBY, requires: ["tmpdir"])
      Memscope.rss
      Dir.mktmpdir { |directory| in_child { Dir.chroot(directory); [Memscope.rss, Memscope.rss] } }
    RUBY
  end

  def test_still_right_after_chroot_of_the_process_itself
    skip "chroot needs root" unless Process.uid.zero?

    assert_equal "true", say(<<~RUBY, requires: ["tmpdir"])
      Memscope.rss
      Dir.mktmpdir { |directory| in_child { Memscope.rss; Dir.chroot(directory); Memscope.rss.positive? } }
    RUBY
  end

  def test_allocates_nothing
    assert_equal "0", say(<<~RUBY)
      GC.disable
      allocated = lambda do
        before = GC.stat(:total_allocated_objects)
        100.times { Memscope.rss }
        GC.stat(:total_allocated_objects) - before
      end
      allocated.call # lets Ruby allocate the call sites' inline caches
      allocated.call
    RUBY
  end

  private

  # The value of the script's last expression, as text.
  def say(script, **options)
    run_script("$stdout.print((lambda do\n#{script}\nend).call)", **options).out
  end

  def run_script(script, requires: [], **options)
    result = ChildProcess.run(TRUTH + script, requires: ["memscope", "etc", *requires], **options)

    assert_predicate result, :success?, result.to_s

    result
  end
end
