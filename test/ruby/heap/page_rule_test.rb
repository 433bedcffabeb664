# frozen_string_literal: true

require_relative "../../test_helper"

# The settings by which a GC keeps pages without objects, as this Ruby reads them, and what a GC returns by them.
class PageRuleTest < MemscopeTest
  parallelize_me!

  def floor(**environment)
    child_json(<<~RUBY, env: environment.transform_keys(&:to_s))
      require "json"
      puts JSON.generate(Memscope.ruby_heap.free_slots_floor)
    RUBY
  end

  # How many pages a GC is predicted to return, at least and at most, and how many it returns.
  def returned(garbage = "nil", **environment)
    child_json(<<~RUBY, env: environment.transform_keys(&:to_s))
      require "json"
      GC.disable
      objects = Array.new(600_000) { Object.new }
      GC.start
      #{garbage}
      objects = nil
      pages = Memscope.const_get(:Native).object_blocks(false, false)[:heap_pages]
      size = GC::INTERNAL_CONSTANTS[:HEAP_PAGE_SIZE]
      before = GC.stat(:total_freed_pages)
      GC.enable
      GC.start
      puts JSON.generate([pages[:bytes] / size, pages[:max_bytes] / size, GC.stat(:total_freed_pages) - before])
    RUBY
  end

  def assert_inside(answer)
    least, most, freed = answer

    assert_includes (least - 2)..(most + 2), freed # some objects are made between
  end

  # An object with a finalizer keeps its page until the finalizer has run, after the collection.
  def test_garbage_with_finalizers
    assert_inside returned("finalizer = proc {}; objects.each { ObjectSpace.define_finalizer(_1, finalizer) }")
  end

  # Before Ruby 3.3; later ones ignore this variable.
  def test_the_number_of_all_heaps
    skip "no such setting" if RUBY_VERSION >= "3.3"

    numbers = { "200000" => 200_000, "100k" => 102_400, "0x10K" => 16_384, "1m " => 1 << 20, "1 m" => 10_000,
                "2kk" => 10_000, "-1k" => 10_000, "9000000000g" => 10_000 }

    assert_equal(numbers, numbers.to_h { |given, _| [given, floor(RUBY_GC_HEAP_INIT_SLOTS: given)] })
    assert_inside returned(RUBY_GC_HEAP_INIT_SLOTS: "1m")
  end

  def test_a_number_for_each_heap
    skip "no such setting" unless ("3.3"..."4.1").cover?(RUBY_VERSION)

    ignored = { RUBY_GC_HEAP_INIT_SLOTS: "200000" }

    assert_equal floor + 990_000, floor(RUBY_GC_HEAP_0_INIT_SLOTS: "1000000", **ignored)
    assert_inside returned(**ignored)
    assert_inside returned(RUBY_GC_HEAP_0_INIT_SLOTS: "2m")
  end

  def test_bytes_of_each_heap
    skip "no such setting" if RUBY_VERSION < "4.1"

    assert_nil floor
    assert_inside returned
    assert_inside returned(RUBY_GC_HEAP_INIT_BYTES: "16m")
  end
end
