# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../support/traced_program"
require_relative "../../support/tracer"

# Copies of processes in containers, of other users, in sandboxes, being born, ending, and of unusual shapes: an answer
# or a refusal, and the process goes on.
class RubyTargetTest < MemscopeTest
  parallelize_me!

  NOBODY = 65_534
  HOST = ["-r", File.join(ChildProcess::TEST_EXTENSION_DIRECTORY, "memscope_test.so")].freeze
  RUBY_AND_HOST = [*ChildProcess.ruby, *HOST].freeze

  # The source of a program that exports what a Ruby exports.
  FORGED = <<~C.freeze
    const char ruby_version[] = "#{RUBY_VERSION}";
    __thread void *ruby_current_ec;
    #{File.read("#{ChildProcess::ROOT}/ext/memscope/engine/attach/ruby_functions.def")
          .scan(/^FUNCTION\(\w+, "(\w+)"/).map { |name| "void #{name.first}(void) {}" }.join(' ')}
    int main(void) { for (;;) __asm__ volatile("syscall" : : "a"(34) : "rcx", "r11", "memory"); } // pause
  C

  def setup
    skip_under_sanitizer
  end

  def test_in_a_container_of_its_own
    command = %w[unshare --mount --pid --fork --mount-proc sh -c].push('mount -t tmpfs none /mnt && exec "$@"', "sh")
    skip "no namespaces here" unless system(*command, "true", err: File::NULL)

    TracedProgram.run("state", "sleep", before: command, nested: true) do |program|
      assert_equal %w[1 1], Tracer.copy(program.pid, "Process.pid - Process.pid + 1", "1").answers
      assert_unharmed(program)
    end
  end

  def test_another_user_may_be_copied_by_root_only
    skip_unless_readable_for(NOBODY)
    TracedProgram.run("state", "sleep") do |program|
      assert_equal ["denied", program.pid.to_s], refusal_for_nobody(program).first(2)
      assert_unharmed(program)
    end
    TracedProgram.run("state", "sleep", before: as_nobody) do |program|
      assert_answers(program)
      assert_nil refusal_for_nobody(program)
    end
  end

  def test_a_process_that_changed_its_user_is_refused_to_that_user
    skip_unless_readable_for(NOBODY)
    TracedProgram.run("state", "other_user") do |program|
      assert(program.await { program.status("Uid").start_with?(NOBODY.to_s) })

      assert_equal ["denied", program.pid.to_s], refusal_for_nobody(program).first(2)
      assert_answers(program)
    end
  end

  def test_with_a_seccomp_filter
    TracedProgram.run("state", "filtered", ruby: RUBY_AND_HOST) do |program|
      assert(program.await { program.status("Seccomp") == "2" })
      assert_answers(program)
    end
  end

  # Root suspends the filter for the call. Others cannot know what it does.
  def test_with_a_seccomp_filter_that_kills_it_for_a_fork
    skip_unless_readable_for(NOBODY)
    TracedProgram.run("state", "no_fork", ruby: RUBY_AND_HOST, before: as_nobody) do |program|
      assert(program.await { program.status("Seccomp") == "2" })
      assert_equal ["seccomp_filter", program.pid.to_s], refusal_for_nobody(program)
      assert_answers(program)
    end
  end

  def test_in_seccomp_s_strict_mode
    TracedProgram.run("state", "strict", ruby: RUBY_AND_HOST) do |program|
      assert(program.await { program.status("Seccomp") == "1" })
      assert_equal ["seccomp", program.pid.to_s], Tracer.copy(program.pid).refusal
      assert_unharmed(program)
    end
  end

  def test_a_user_who_may_not_create_more_processes
    skip_unless_readable_for(NOBODY)
    TracedProgram.run("state", "no_more_processes", before: as_nobody) do |program|
      assert(program.await { File.read("/proc/#{program.pid}/limits").match?(/^Max processes +0 /) })
      assert_equal ["no_clone", program.pid.to_s, "Resource temporarily unavailable"], Tracer.copy(program.pid).refusal
      assert_unharmed(program)
    end
  end

  # The text names the C function.
  def test_busy_in_c_with_the_gvl
    TracedProgram.run("state", "power") do |program|
      place = nil
      found = program.await do # on a busy machine, a copy may not come so far
        name, _pid, place = Tracer.copy(program.pid, deadline_ms: 500).refusal
        name == "no_safe_point"
      end

      assert found
      assert_match(/\A\w+ \(lib\w+.*\)\z|\Alib\S+\+0x\h+\z/, place)
      assert_unharmed(program)
    end
  end

  def test_another_c_library
    { ["musl-gcc", "-rdynamic"] => ["other_libc", /\A(?:ld-musl-|libc\.)/],
      %w[cc -nostdlib -shared -fPIC -Wl,-e,main] => ["libc_unknown", /\Anone\z/] }.each do |compiler, (refusal, file)|
      skip "there is no #{compiler.first}" unless system("which", compiler.first, out: File::NULL)

      with_forged_ruby(compiler) do |program|
        assert_equal [refusal, program.to_s], Tracer.copy(program).refusal.first(2)
        assert_match file, Tracer.copy(program).refusal.last
      end
    end
  end

  # RubyGems and its libraries are loaded when the program starts.
  def test_while_it_boots
    program = TracedProgram.new("state", "sleep", ruby: [RbConfig.ruby, "-rset", "-ropenssl", "-rnet/http"])
    outcomes = Array.new(8) { Tracer.copy(program.pid, "6 * 7") }
    program.await_ready

    outcomes.each { |outcome| assert(outcome.refusal || outcome.answers == %w[42]) }
    assert_answers(program)
  ensure
    program&.stop
  end

  def test_while_it_ends
    8.times do |number|
      program = TracedProgram.new("checksums").await_ready
      ending = Thread.new { sleep(number * 0.003) && program.finish }
      outcome = Tracer.copy(program.pid, "6 * 7", *(["1"] * 20))

      assert_includes ["42", nil], outcome.answers.first
      assert(outcome.refusal || outcome.answers.any?)
      assert_equal "0", ending.value.split.last
      assert_predicate program.ended, :success?
    ensure
      program&.stop
    end
  end

  def test_with_500_threads
    TracedProgram.run("state", "threads") do |program|
      assert(program.await { program.status("Threads").to_i > 500 })
      assert_equal %w[501], Tracer.copy(program.pid, "Thread.list.size").answers
      assert_unharmed(program)
      assert_empty program.printed
    end
  end

  def test_on_an_alternate_signal_stack
    TracedProgram.run("state", "signal_stack", ruby: RUBY_AND_HOST) do |program|
      2.times { assert_answers(program) }
    end
  end

  # Its thread cannot be stopped until the child executes a program.
  def test_while_the_child_of_a_vfork_runs
    TracedProgram.run("state", "vfork", ruby: RUBY_AND_HOST) do |program|
      assert(program.await { program.status("State").start_with?("D") })
      outcome = Tracer.copy(program.pid, "6 * 7")

      assert_equal ["not_stopped", program.pid.to_s, program.pid.to_s], outcome.refusal&.first(3)
      assert_match(/\A(?!unknown)[a-z]\w+\z/, outcome.refusal.last)
      assert_equal "woke\n", program.gets
      assert_answers(program)
    end
  end

  private

  def with_forged_ruby(compiler)
    Dir.mktmpdir do |directory|
      File.write(source = "#{directory}/forged.c", FORGED)
      system(*compiler, "-o", "#{directory}/forged", source, exception: true)
      pid = spawn("#{directory}/forged")
      yield pid
    ensure
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
  end

  def as_nobody = ["setpriv", "--reuid=#{NOBODY}", "--regid=#{NOBODY}", "--clear-groups"]

  # What the tracer of another user says, as Tracer::Outcome#refusal.
  def refusal_for_nobody(program)
    script = "puts JSON.generate(Tracer.copy(#{program.pid}, '1').refusal)"
    result = ChildProcess.run_command(*as_nobody, *ChildProcess.ruby, "-r#{ChildProcess::ROOT}/test/support/tracer",
                                      "-e", script)
    result.json
  end

  def assert_answers(program)
    outcome = Tracer.copy(program.pid, "6 * 7")

    assert_nil outcome.refusal
    assert_equal %w[42], outcome.answers
    assert_unharmed(program)
  end

  def assert_unharmed(program)
    assert(program.await { program.status("TracerPid") == "0" })
    assert_match(/\A[RSD]/, program.status("State"))
    refute_includes program.children, "Z"
  end
end
