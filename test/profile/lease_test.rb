# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/interrupted_profile"

class ProfileLeaseTest < MemscopeTest
  include InterruptedProfile

  # The requester gets no token, but the thread that ends the profile exists.
  def test_an_interrupted_lease_ends_by_itself
    ended = child_json(<<~RUBY, requires: %w[json memscope])
      #{INTERRUPT}
      Memscope::Profile::Lease.send(:remove_const, :GRACE_SECONDS)
      Memscope::Profile::Lease::GRACE_SECONDS = 0
      at_return.call(:start_profile) { Thread.main.raise(Interrupt) }
      begin
        Memscope::MallocProfile.lease.start(seconds: 0.05, backend: :imports)
      rescue Interrupt
        started = Memscope::MallocProfile.running?
      end
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 20
      Thread.pass while Memscope::MallocProfile.running? && Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
      puts JSON.generate([started, Memscope::MallocProfile.running?])
    RUBY

    assert_equal [true, false], ended
  end

  def test_a_lease_that_no_thread_would_end_does_not_begin
    noun = "no thread could be started to end this %s profile: can't create Thread"
    answers = child_json(<<~RUBY, requires: %w[json memscope])
      Memscope.malloc_profile(backend: :imports) { nil } # starts a thread of its own, once
      Thread.define_singleton_method(:new) { |*| raise ThreadError, "can't create Thread" }
      profilers = { Memscope::MallocProfile => { backend: :imports }, Memscope::ObjectProfile => {} }
      answers = profilers.map do |profiler, options|
        profiler.lease.start(seconds: 600, **options)
      rescue Memscope::Unavailable => e
        [e.message, profiler.running?]
      end
      puts JSON.generate(answers)
    RUBY

    assert_equal [[format(noun, "malloc"), false], [format(noun, "object"), false]], answers
  end

  # However long it is.
  def test_a_lease_ends_when_it_is_over
    slept = child_json(<<~RUBY, requires: %w[json memscope memscope/profile/malloc_profile])
      lease = Memscope::MallocProfile.lease
      lease.define_singleton_method(:sleep) do |seconds|
        raise ArgumentError, "time interval must not be negative" if seconds.negative?

        @slept += seconds
      end
      puts JSON.generate([0.5, 62.4, 90, 86_400].map do |seconds|
        lease.instance_variable_set(:@slept, 0)
        lease.send(:expire, "none", seconds)
        lease.instance_variable_get(:@slept) - Memscope::Profile::Lease::GRACE_SECONDS
      end)
    RUBY

    [0.5, 62.4, 90, 86_400].zip(slept) { |asked, took| assert_in_delta asked, took, 0.001 }
  end

  def test_leases_that_were_stopped_leave_one_thread
    alive = child_json(<<~RUBY, requires: %w[json memscope memscope/profile/malloc_profile])
      lease = Memscope::MallocProfile.lease
      5.times { lease.stop(token: lease.start(seconds: 600, backend: :imports)) }
      named = -> { Thread.list.count { |thread| thread.name == "memscope profile" } }
      200.times { named.call > 1 && sleep(0.01) }
      puts JSON.generate([named.call])
    RUBY

    assert_equal [1], alive
  end

  def test_a_process_with_a_lease_ends_at_once
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    ran = ChildProcess.run("Memscope::MallocProfile.lease.start(seconds: 600, backend: :imports)",
                           requires: %w[memscope memscope/profile/malloc_profile])

    assert_predicate ran, :success?, ran
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - started, :<, 60
  end
end
