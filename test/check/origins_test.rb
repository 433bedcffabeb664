# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/checked_in_child"

# Where growth was allocated, and what retains it.
class CheckOriginsTest < MemscopeTest
  include CheckedInChild

  parallelize_me!

  # Each class grows by a third of an object per iteration, all together by one, and at first by some inline caches.
  def test_growth_of_several_classes_is_found_together
    check = ran("n = 0; KEPT = []", "{ KEPT << [Object, Array, Hash][(n += 1) % 3].new }", QUICK)
    grown = check.grown.first

    assert_equal [nil, 1], [grown.name, grown.per_iteration]
    grown.growth.each { |objects| assert_in_delta 20, objects, 9 }

    assert_in_delta 40, grown.places.first.count, 1
    assert_match(/\+1 object of several classes per iteration/, check.to_s)
  end

  # Before Ruby 3.3, a garbage collection moves the contents of Arrays and Hashes to malloc, at whatever line it runs.
  def test_the_memory_of_objects_is_no_growth_of_malloc
    check = ran("n = 0; KEPT = []", "{ KEPT << { (n += 1) => [n, n, n, n] } }")

    assert_equal(%w[Array Hash], check.grown.map { |one| one.name || "malloc" }.sort)
  end

  # What all threads allocate has lines.
  def test_a_thread_of_the_block
    check = ran("KEPT = []", "{ Thread.new { KEPT << Order.new }.join }", QUICK, setup: "class Order; end")
    order = check.grown.find { |one| one.name == "Order" }

    assert_equal [40], order.places.map(&:count)
    assert_match(/KEPT → Array → Order/, order.held_by.join(" → "))
  end

  # Within a measurement, nothing else is measured.
  def test_lines_are_missing_with_a_reason
    check = Memscope::Check.from_h(child_json(<<~RUBY, requires: REQUIRES))
      check = nil
      Memscope.measure { check = Memscope::Check.run(in: :process, #{QUICK}) { (@kept ||= []) << Object.new } }
      puts check.to_json
    RUBY

    assert_equal([["Object", []]], check.grown.map { |one| [one.name, one.places] })
    assert_match(/\Aa measurement is running in this thread/, check.reasons[:places])
  end
end
