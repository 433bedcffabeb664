# frozen_string_literal: true

require_relative "../../test_helper"

# What objects own through malloc: each block once, as large as the allocator keeps it.
class ObjectBlocksTest < MemscopeTest
  parallelize_me!

  COUNT = 1_000

  # For each kind: an object, and the bytes of each block that it asks malloc for. Nothing of it fits into a slot.
  KINDS = <<~RUBY.freeze
    require "memscope"
    require "json"

    COUNT = #{COUNT}
    MEMBERS = (0...150).map { |index| :"member_\#{index}" }
    Many = Struct.new(*MEMBERS)
    Two = Struct.new(:first, :second)
    TABLE = { sizeof: 56, entry: 24 } # struct st_table, and one of its entries

    KINDS = {
      string: [-> { "x" * 5000 }, [5001]],
      small_string: [-> { "x" }, []],
      array: [-> { Array.new(500) { 1 } }, [4000]],
      small_array: [-> { [1, 2] }, []],
      struct: [-> { Many.new(*MEMBERS) }, [150 * 8]],
      small_struct: [-> { Two.new(1, 2) }, []],
      bignum: [-> { 1 << 6400 }, [(1 << 6400).size]],
      small_bignum: [-> { 1 << 64 }, []],
      hash: [-> { (0...100).to_h { |index| [index, 1] } },
             [*(TABLE[:sizeof] if RUBY_VERSION < "3.3"), 128 * TABLE[:entry], 256]],
      float: [-> { 1e300 }, []]
    }
    # The objects are old before their buffers are asked for: those of young ones may lie in the transient heap.
    def grown(make) = Array.new(COUNT) { make.call }.tap { 4.times { GC.start } }

    KEPT = []
    # Numbers only: a reading would be among the objects of the next one.
    def survey
      4.times { GC.start }
      Memscope::Ledger.survey[1].all.to_h.values_at(:objects, :blocks, :block_bytes, :unfollowed_objects)
    end
    # How much more the heap owns once the block has made objects.
    def owned
      before = survey
      KEPT << yield
      survey.zip(before).map { |after, earlier| after - earlier }
    end
    # What the first calls load, and leave behind, is there before the others.
    3.times { owned { grown(-> { Object.new }) } }
  RUBY
  # Objects or blocks that a survey may leave behind.
  FEW = RUBY_VERSION < "4" ? 20 : 200

  # The bytes that malloc keeps for a request of `bytes`: glibc's chunk, jemalloc's size class.
  def kept(bytes, preload)
    return [(bytes + 8 + 15) / 16 * 16, 32].max unless preload

    spacing = [16, (2**((bytes - 1).bit_length - 1)) / 4].max
    (bytes + spacing - 1) / spacing * spacing
  end

  both_allocators "every block has the size that malloc keeps" do |preload|
    skip_under_sanitizer
    answer = child_json(<<~RUBY, preload: preload)
      #{KINDS}
      puts JSON.generate(KINDS.to_h { |name, (make, asked)| [name, [asked, owned { grown(make) }]] })
    RUBY
    answer.each do |name, (asked, (objects, blocks, bytes, unfollowed))|
      expected = asked.sum { |size| kept(size, preload) }

      assert_in_delta COUNT, objects, FEW, name unless name == "float"

      assert_in_delta COUNT * asked.size, blocks, FEW, name
      # The array around them, and what is too small for a chunk, which is added to the one before it.
      assert_in_delta (COUNT * expected) + kept(COUNT * 8, preload), bytes, (COUNT * expected / 100) + 4_000, name
      assert_in_delta 0, unfollowed, FEW, name
    end
  end

  # A payload that several Strings share is freed with one of them only.
  def test_a_shared_payload_counts_once
    skip_under_sanitizer
    one, parts = child_json(<<~RUBY)
      #{KINDS}
      one = owned { ("x" * 2_000_000).freeze }
      parts = owned { Array.new(COUNT) { |index| KEPT.last[index..] } }
      puts JSON.generate([one, parts].map { |found| found[2] })
    RUBY

    assert_in_delta 2_000_001, one, 20_000
    assert_operator parts, :<, 20_000
  end

  # The buffer that Arrays share belongs to an Array that no program sees, and is freed with it.
  def test_a_shared_buffer_counts_once
    skip_under_sanitizer
    _objects, blocks = child_json(<<~RUBY)
      #{KINDS}
      puts JSON.generate(owned { grown(KINDS.fetch(:array).first).map { |array| array[100..] } })
    RUBY

    assert_includes (COUNT - FEW)..(COUNT * 2), blocks
  end

  # For an object of a C extension, the block of its data counts; what else it owns is counted as not followed.
  def test_data_of_extensions
    skip_under_sanitizer
    found = child_json(<<~RUBY)
      #{KINDS}
      owned = owned { Array.new(COUNT) { |index| binding } }
      puts JSON.generate([owned, Memscope::Ledger.survey[1].unfollowed.to_h { |kind| [kind.name, kind.objects] }])
    RUBY

    assert_in_delta COUNT, found[1]["binding"], FEW
    assert_in_delta COUNT, found[0].last, FEW
    assert_operator found[0][1], :>, COUNT
  end

  # Nothing points to it any more, and no collection has run: found by marking in the child. A survey leaves garbage of
  # its own.
  both_allocators "garbage is found without a collection" do |preload|
    skip_under_sanitizer
    own, before, after, kept, runs = child_json(<<~RUBY, preload: preload)
      #{KINDS}
      GC.start
      GC.disable
      KEPT << Array.new(1_000) { "k" * 3_000 }
      runs = GC.count
      once, first = Array.new(2) { Memscope::Ledger.survey[1] }
      Thread.new { Array.new(2_000) { "x" * 3_000 } && nil }.join
      second = Memscope::Ledger.survey[1]
      puts JSON.generate([first.garbage.block_bytes - once.garbage.block_bytes, first.garbage.block_bytes,
                          second.garbage.block_bytes, second.all.block_bytes, GC.count - runs])
    RUBY
    dropped = 2_000 * self.kept(3_001, preload)

    assert_in_delta dropped, after - before - own, dropped / 100
    assert_operator kept - after, :>=, 1_000 * self.kept(3_001, preload)
    assert_equal 0, runs
  end

  # What only a local of another thread or of a fiber holds is not garbage; nor what a finalizer or a constant does.
  def test_what_is_held_is_no_garbage
    skip_under_sanitizer
    garbage = child_json(<<~RUBY)
      #{KINDS}
      big = -> { "x" * 1_000_000 }
      ready = Queue.new
      Thread.new { local = big.call; ready << 1; sleep; local }
      FIBER = Fiber.new { local = big.call; Fiber.yield; local }
      FIBER.resume
      ready.pop
      ObjectSpace.define_finalizer(ready, big.call.then { |held| proc { held } })
      HELD = { Object.new => big.call }.compare_by_identity
      Thread.current[:own] = big.call
      GC.start
      puts JSON.generate(Memscope::Ledger.survey[1].garbage.block_bytes)
    RUBY

    assert_operator garbage, :<, 1_000_000
  end

  # A Ruby cache of many small blocks: what malloc adds for each is not native memory.
  both_allocators "the doctor names the growth of objects, and no native growth", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    found = child_json(<<~RUBY, preload: preload)
      require "memscope"
      require "json"
      since = Memscope.doctor
      HOARD = {}
      300_000.times { |index| HOARD[index] = ["x" * (30 + (index % 60)), index.to_s * 9] }
      findings = Memscope.doctor(since: since).select { |finding| finding.id.end_with?("_growth") }
      puts JSON.generate(findings.map { |finding| [finding.id, finding.severity, finding.affected_bytes] })
    RUBY

    assert_equal([%w[object_growth warning]], found.map { |row| row.first(2) })
    assert_operator found.first.last, :>, 50 << 20
  end
end
