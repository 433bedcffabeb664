# frozen_string_literal: true

require_relative "../test_helper"

# What the protections of the malloc profile are for: without one of them the process crashes, hangs or miscounts, where
# it does not with all. In a build where each can be taken away (base/protections.h); rake stress makes it. Those that
# are not here could not be provoked; the code says why they are needed.
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

  # What is read then has been freed: it need not be gone.
  def test_crashes_without_ruby_ended
    endings = Array.new(4) { without("ruby_ended", "profile_stress.rb", seconds: 1) }

    refute endings.all?(&:success?)
  end

  # A signal handler waits for the lock that it has interrupted.
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

  # glibc with one arena: threads get each other's blocks.
  def without(name, workload, seconds: SECONDS)
    env = { "MEMSCOPE_WITHOUT" => name, "SECONDS" => seconds.to_s, "BACKEND" => "imports", "MALLOC_ARENA_MAX" => "1" }
    ChildProcess.run("load #{File.join(WORKLOADS, workload).dump}", requires: ["memscope"], env: env,
                                                                    ruby_args: ["-I#{DIRECTORY}"],
                                                                    timeout: seconds + 40)
  end
end
