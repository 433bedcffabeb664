# frozen_string_literal: true

require_relative "../test_helper"

# Threads share the requests, and live on between calls. An error or an interrupt ends the requests.
class ExerciseRequestsTest < MemscopeTest
  Requests = Memscope::Exercise.const_get(:Requests)

  def setup
    @threads = Queue.new
  end

  def teardown = @requests&.close

  def test_in_this_thread
    requests(1).call(7)

    assert_equal [[Thread.current], 7], [taken.uniq, @requests.made]
  end

  def test_in_several_threads
    requests(3).call(20)
    first = taken
    @requests.call(4)

    assert_equal [[6, 7, 7], 24], [first.tally.values.sort, @requests.made]
    assert_empty taken.uniq - first
    assert_equal 3, first.uniq.size
    refute_includes first, Thread.current
    @requests.close

    assert(first.none?(&:alive?))
  end

  def test_an_error_ends_all_of_them
    requests(2) { |number| raise IOError, "no" if number == 5 }

    assert_equal "no", assert_raises(IOError) { @requests.call(1_000_000) }.message
  end

  def test_an_interrupt_comes_between_two_requests
    requests(1) { |number| @requests.interrupt if number == 5 }

    assert_raises(Interrupt) { @requests.call(9) }
    assert_equal 5, @requests.made
    assert_raises(Interrupt) { @requests.interrupt }
  end

  private

  def requests(threads, &wrong)
    number = 0
    one = lambda do
      @threads << Thread.current
      wrong&.call(number += 1)
    end
    @requests = Requests.new([one] * threads)
  end

  def taken = Array.new(@threads.size) { @threads.pop }
end
