# frozen_string_literal: true

require_relative "../test_helper"

# Shows what each protection of the malloc profile prevents: without it, the process crashes, hangs or miscounts; with
# all of them, it does not. Runs in a build in which each can be switched off (base/protections.h, built by rake
# stress). For the protections that are missing here, no failure could be provoked; the code says why they are needed.
class MallocProfileProtectionsTest < MemscopeTest
  DIRECTORY = File.join(ChildProcess::ROOT, "tmp/unprotected")
  WORKLOADS = File.join(ChildProcess::ROOT, "test/support/workloads")
  SECONDS = 15

  def setup
    skip "takes minutes: rake stress" unless Integer(ENV.fetch("SECONDS", "0")) >= 60
    skip "the build without protections is not there" unless File.exist?(File.join(DIRECTORY, "memscope/memscope.so"))
  end

  def test_all_of_them
    assert_predicate without("nothing", "profile_stress.rb"), :success?
    assert_equal({ "hanging" => 0, "lost_frees" => 0 }, without("nothing", "profile_forks.rb").json)
  end

  %w[native_thread marking pinning].each do |name|
    define_method("test_crashes_without_#{name}") do
      result = without(name, "profile_stress.rb")

      refute_predicate result, :success?
      assert_match(/\[BUG\]/, result.err)
    end
  end

  # The memory that is then read was freed, but need not be unmapped, so not every run crashes.
  def test_crashes_without_ruby_ended
    endings = Array.new(4) { without("ruby_ended", "profile_stress.rb", seconds: 1) }

    refute endings.all?(&:success?)
  end

  # A signal handler waits for a lock that the interrupted code holds.
  %w[inside deferred_removal].each do |name|
    define_method("test_hangs_without_#{name}") do
      failure = assert_raises(ChildProcess::Failure) { without(name, "profile_stress.rb") }

      assert_match(/killed after/, failure.message)
    end
  end

  def test_children_hang_without_lock_across_fork
    assert_equal 1, without("lock_across_fork", "profile_forks.rb").json["hanging"]
  end

  def test_miscounts_without_removal_first
    assert_operator without("removal_first", "profile_forks.rb").json["lost_frees"], :>, 0
  end

  private

  # With a single glibc arena, threads get each other's blocks.
  def without(name, workload, seconds: SECONDS)
    env = { "MEMSCOPE_WITHOUT" => name, "SECONDS" => seconds.to_s, "BACKEND" => "imports", "MALLOC_ARENA_MAX" => "1" }
    ChildProcess.run("load #{File.join(WORKLOADS, workload).dump}", requires: ["memscope"], env: env,
                                                                    ruby_args: ["-I#{DIRECTORY}"],
                                                                    timeout: seconds + 40)
  end
end
