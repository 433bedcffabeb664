# frozen_string_literal: true

require_relative "../test_helper"

# Native.start_owners and its like: the owner of each object and block, against hand counts, malloc_usable_size and
# the ledger's rows.
class OwnersBindingTest < MemscopeTest
  parallelize_me!

  PRELUDE = <<~RUBY
    N = Memscope.const_get(:Native)
    def rows
      2.times { GC.start }
      ledger = Memscope.ledger(deep: true, strict: true)
      [ledger.dig(:ruby_heap, :live_slots).bytes, ledger[:malloc].detail[:in_use_bytes]]
    end
    2.times { rows }
    N.start_owners and abort("not recorded")
    def own(owner)
      before = N.own(owner)
      yield
    ensure
      N.own(before)
    end
  RUBY

  def setup
    super
    skip_under_sanitizer
  end

  def owned(script, numbers, preload: nil)
    child_json("#{PRELUDE}#{script}\n2.times { GC.start }\nputs JSON.generate(N.owned(#{numbers + 1}))",
               requires: ["json"], preload: preload)
  end

  both_allocators("objects and blocks belong to who allocated them") do |preload|
    _before, _outside, _ruby, _memscope, objects, blocks = owned(<<~RUBY, 5, preload: preload)
      kept = own(4) { Array.new(20_000) { Object.new } }
      strings = own(5) { Array.new(50) { "x" * 20_000 } }
      20_000.times { Object.new } # garbage
    RUBY

    assert_in_delta 20_001, objects[0], 10
    assert_equal 40 * objects[0], objects[1] if RUBY_VERSION < "3.2"

    assert_in_delta 51, blocks[2], 5
    assert_in_delta 50 * 20_000, blocks[3], 50 * 1000 # what malloc rounds up: jemalloc to 20,480
  end

  both_allocators("a block that grows keeps its owner") do |preload|
    _before, outside, _ruby, _memscope, owner, other = owned(<<~RUBY, 5, preload: preload)
      text = own(4) { +"x" * 30_000 }
      own(5) { 100.times { text << ("y" * 10_000) } }
    RUBY

    assert_operator owner[3], :>, 1_000_000
    assert_operator other[3], :<, 100_000
    assert_operator outside[3], :<, 100_000
  end

  # Ruby's tables of frozen strings and symbols double by copying.
  both_allocators("a table that doubles by copying keeps its owner") do |preload|
    *, table, filler = owned(<<~RUBY, 5, preload: preload)
      table = own(4) { (1..40_000).to_h { |number| [number, number] } }
      before = own(4) { N.owned(6) }.last.last
      own(5) { (40_001..140_000).each { |number| table[number] = number } }
    RUBY

    assert_operator table[3], :>, 4_000_000
    assert_operator filler[3], :<, 100_000
  end

  # glibc unmaps the block of 40 MB when it is freed.
  both_allocators("a block that another thread has freed replaces none") do |preload|
    owner = owned(<<~RUBY, 4, preload: preload).last
      def free_a_half(bytes)
        large = done = nil
        helper = Thread.new { Thread.stop; large.clear; done = true }
        Thread.pass until helper.stop?
        small = own(4) { "s" * bytes }
        large = "l" * (2 * bytes)
        helper.wakeup
        Thread.pass until done
        small.clear
        helper.join
      end
      [10_000, 10_000, 10_000, 20_000_000].each { |bytes| free_a_half(bytes) }
    RUBY

    assert_operator owner[3], :<, 5000
  end

  both_allocators("everything together is what the rows say") do |preload|
    differences = child_json(<<~RUBY, requires: ["json"], preload: preload)
      #{PRELUDE}
      before, owned_before = own(3) { [rows, N.owned(5)] }
      kept = own(4) { (1..50_000).map { |number| number.to_s * 10 } }
      GC.disable # GC.start collects nevertheless
      after = own(3) { rows }
      owned = own(3) { N.owned(5) }
      puts JSON.generate(objects: owned.sum { |one| one[1] } - after[0], kept: owned[4][1],
                         malloc: after[1] - before[1], owned: (owned.sum(&:last) - owned_before.sum(&:last)))
    RUBY

    # The row counts the free slots that Ruby keeps at hand, up to a page of each size; the walk does not.
    assert_in_delta 0, differences["objects"], 5 << 16
    assert_operator differences["kept"], :>=, 50_000 * 40
    assert_in_delta differences["malloc"], differences["owned"], 0.05 * differences["malloc"]
  end

  # Every size from jemalloc's smallest, of which two share 16 bytes, up to those with pages of their own.
  both_allocators("no block is lost or counted twice") do |preload|
    lost, kept = child_json(<<~RUBY, requires: ["json"], preload: preload)
      #{PRELUDE}
      200.times { |round| eval((1..40).map { |n| "def m\#{round}_\#{n}(a = 1, b: 2, &c) = [a, b, '\#{n}']" }.join(";")) }
      20_000.times { |n| Hash[n, "x" * (n % 3000)] }
      600.times { |n| "x" * (n * 1000) }
      kept = own(5) { Array.new(1000) { |n| "x" * (1000 + n) } }
      2.times { GC.start }
      puts JSON.generate([N.stop_owners.first, N.owned(6)[5][3]])
    RUBY

    assert_equal 0, lost
    assert_in_delta (1000..1999).sum, kept, 150_000 # what malloc rounds up
  end

  both_allocators("what the answer takes is not in it") do |preload|
    blocks = child_json(<<~RUBY, requires: ["json"], preload: preload)
      #{PRELUDE}
      counts = [3, 4].map { |owner| own(owner) { N.owned(100_000) } } # the first call also fills Ruby's method cache
      puts JSON.generate(counts.last[4].last(2))
    RUBY

    assert_equal [0, 0], blocks
  end

  def test_another_thread_allocates_for_nobody
    _before, outside, _ruby, _memscope, owner = owned(<<~RUBY, 4)
      kept = nil
      own(4) { Thread.new { kept = Array.new(20_000) { Object.new } }.join }
    RUBY

    assert_operator outside[0], :>, 20_000
    assert_operator owner[0], :<, 1000
  end

  def test_a_profile_of_malloc_does_not_start_meanwhile
    skip_without "fiddle" if RUBY_VERSION >= "4"
    found = child_json(<<~RUBY, requires: ["json"])
      #{PRELUDE}
      begin
        Memscope::MallocProfile.start(backend: :imports)
        message = "started"
      rescue Memscope::Unavailable => e
        message = e.message
      end
      N.stop_owners
      Memscope::MallocProfile.start(backend: :imports, rate: 1 << 16)
      kept = Array.new(100) { "x" * 100_000 }
      puts JSON.generate([message, Memscope::MallocProfile.stop.total_live_bytes])
    RUBY

    refute_equal "started", found.first
    assert_in_delta 10_000_000, found.last, 5_000_000
  end
end
