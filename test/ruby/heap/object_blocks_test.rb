# frozen_string_literal: true

require_relative "../../test_helper"

# What objects own through malloc: each block once, as large as the allocator keeps it.
class ObjectBlocksTest < MemscopeTest
  parallelize_me!

  COUNT = 500

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
    def owned(objects) = Memscope.const_get(:Native).object_blocks(objects, false, false)[:garbage]
  RUBY

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
      puts JSON.generate(KINDS.to_h { |name, (make, asked)|
        objects = grown(make)
        array = owned([objects])
        [name, [asked, array.values_at(:objects, :blocks, :block_bytes, :unfollowed_objects)]]
      })
    RUBY
    # The two arrays around them: one of COUNT elements, and one of a single element, which is embedded in its slot.
    around = kept(COUNT * 8, preload)
    answer.each do |name, (asked, (objects, blocks, bytes, unfollowed))|
      expected = asked.sum { |size| kept(size, preload) }

      assert_equal COUNT + 2, objects, name unless name == "float"

      assert_equal COUNT * asked.size, blocks - 1, name
      # What is too small for a chunk is added to the one before it.
      assert_includes (COUNT * expected)..(COUNT * expected * 1.01), bytes - around, name
      assert_equal 0, unfollowed, name
    end
  end

  # A payload that several Strings share is freed with one of them only.
  def test_a_shared_payload_counts_once
    skip_under_sanitizer
    one, all = child_json(<<~RUBY)
      #{KINDS}
      text = ("x" * 100_000).freeze
      parts = Array.new(COUNT) { |index| text[index..] }
      4.times { GC.start }
      puts JSON.generate([owned([text]), owned([text, parts])].map { |found| found[:block_bytes] })
    RUBY

    assert_operator one, :>=, 100_001
    assert_operator all - one, :<, 2 * COUNT * 8
  end

  # The buffer that Arrays share belongs to an Array that no program sees, and is freed with it.
  def test_a_shared_buffer_counts_once
    skip_under_sanitizer
    before, after = child_json(<<~RUBY)
      #{KINDS}
      blocks = lambda do
        4.times { GC.start }
        Memscope::Ledger.survey[1].all.blocks
      end
      before = blocks.call
      KEPT = grown(KINDS.fetch(:array).first).map { |array| array[100..] }
      puts JSON.generate([before, blocks.call])
    RUBY

    assert_includes (COUNT - 20)..(COUNT * 2), after - before, "some blocks of others may have been freed"
  end

  # For an object of a C extension, the block of its data counts; what else it owns is counted as not followed.
  def test_data_of_extensions
    skip_under_sanitizer
    found = child_json(<<~RUBY)
      #{KINDS}
      bindings = Array.new(COUNT) { |index| binding }
      answer = Memscope.const_get(:Native).object_blocks([bindings], false, false)
      puts JSON.generate([answer[:garbage], answer[:unfollowed].to_h { |kind| kind.values_at(:name, :garbage) }])
    RUBY

    assert_equal({ "binding" => COUNT }, found[1].select { |_name, garbage| garbage.positive? })
    assert_equal COUNT, found[0]["unfollowed_objects"]
    assert_operator found[0]["blocks"], :>, COUNT
  end

  # Nothing points to it any more, and no collection has run: found by marking in the child. A survey leaves garbage of
  # its own.
  both_allocators "garbage is found without a collection" do |preload|
    skip_under_sanitizer
    own, before, after, kept, runs = child_json(<<~RUBY, preload: preload)
      #{KINDS}
      GC.start
      GC.disable
      KEPT = Array.new(1_000) { "k" * 3_000 }
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
