# frozen_string_literal: true

require_relative "../../test_helper"
require "minitest/mock"
require "memscope/remote/workers"

# When a process reports, and to whom.
class WorkersWatchTest < MemscopeTest
  # Otherwise its counters would seem to fall once the master answers again.
  def test_a_worker_tells_of_itself_what_went_out
    sent = true
    watch = Memscope::Workers::Watch.new(Memscope::Workers::Reporter.new(role: :worker, index: 0)) { sent }
    watch.step
    known = watch.latest
    sent = false
    watch.step

    assert_same known, watch.latest
    sent = true
    watch.step

    refute_same known, watch.latest
  end

  # Workers that were forked together would otherwise be refused together, again and again.
  def test_a_refused_report_is_tried_again_at_another_moment
    sampler = Memscope::Workers::Reporter.new(role: :worker, index: 0)
    reading = sampler.read
    watch = Memscope::Workers::Watch.new(sampler) { false }
    pauses = sampler.stub(:read, reading) { Array.new(8) { watch.step } }

    assert_equal 8, pauses.uniq.size
    pauses.each { |seconds| assert_includes 1..9, seconds }
  end

  def test_a_reading_that_takes_long_is_taken_seldom
    sampler = Object.new
    def sampler.read
      stop = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + 0.1
      nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < stop
    end

    broken = Object.new
    def broken.read = raise(IOError, "no")

    assert_operator Memscope::Workers::Watch.new(sampler).step, :>=, 20
    assert_in_delta 10, Memscope::Workers::Watch.new(broken).step
  end

  # Otherwise the policy would never again decide by its reports.
  def test_a_failed_reading_is_told_by_the_next_report_alone
    sampler = Memscope::Workers::Reporter.new(role: :worker, index: 0)
    told = []
    watch = Memscope::Workers::Watch.new(sampler) { |worker| told << worker.reasons[:at] }
    sampler.stub(:read, -> { raise IOError, "no" }) { watch.step }
    2.times { watch.step }

    assert_equal ["a reading failed: no (IOError)", nil], told
  end

  # glibc gives that thread an arena, so that the reading leaves alone what the main thread shares with a master.
  def test_the_first_reading_is_there_at_once_but_not_from_this_thread
    read_in = nil
    sampler = Memscope::Workers::Reporter.new(role: :worker, index: 0)
    reading = sampler.read
    watch = Memscope::Workers::Watch.new(sampler)
    sampler.stub(:read, -> { reading.tap { read_in = Thread.current } }) { watch.start }

    assert_same reading, watch.own
    assert_equal "memscope sampler", read_in.name
  ensure
    Memscope::Runtime.current.sampling.cancel(watch)
  end

  def test_watch_starts_a_killed_thread_again
    counted = child_json(<<~RUBY, requires: ["json"])
      Memscope.configure { |c| c.history = false }
      threads = -> { Thread.list.select { |thread| thread.name == "memscope sampler" } }
      Memscope::Workers.watch
      threads.call.each { |thread| thread.kill.join }
      killed = threads.call.size
      2.times { Memscope::Workers.watch }
      puts JSON.generate([killed, threads.call.size, Memscope::Workers.current.own.samples])
    RUBY

    assert_equal [0, 1, 2], counted
  end

  def test_a_worker_whose_master_does_not_answer_knows_itself
    watch = Memscope::Workers::Watch.new(Memscope::Workers::Reporter.new(role: :worker, index: 1), master_pid: 1)
    read = watch.read(Memscope::Workers)

    assert_equal([[:worker, 1]], read.map { |one| [one.role, one.index] })
    assert_match(/\Aonly this process: Puma's master \(pid 1\) does not answer: \S/, read.reasons[:workers])
  end
end
