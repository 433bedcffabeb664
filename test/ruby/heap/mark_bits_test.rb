# frozen_string_literal: true

require_relative "../../test_helper"

# What the bitmaps of heap pages say of objects at the end of a mark phase. Each test has a process of its own.
class MarkBitsTest < MemscopeTest
  parallelize_me!

  def setup
    super
    @bitmap = child_json("p Host.mark_bitmap_bytes.to_i", requires: ["memscope_test"])
    skip "this Ruby's bitmaps are not known" if @bitmap.zero?
  end

  # Objects of all slot sizes, of which three in five are garbage.
  OBJECTS = <<~RUBY
    require "json"
    CLASSES = [-> { Object.new }, -> { "x" * rand(700) }, -> { Array.new(rand(90)) { Object.new } }, -> { { 1 => 2 } },
               -> { 1.5e300 * rand }, -> { rand.to_s.to_sym }, -> { proc { rand } }]
    def objects(count) = Array.new(count) { |index| CLASSES[index % CLASSES.size].call }.select { rand < 0.4 }
    $held = [objects(60_000)]
  RUBY

  def test_they_agree_with_ruby_about_each_object_of_the_heap
    counts = in_child(<<~RUBY)
      rounds = [true, false, false, false, true, false].cycle.take(18).each_with_index.map do |major, round|
        $held << objects(10_000)
        $held.shift if round % 5 == 4
        GC.respond_to?(:compact) && round == 9 && GC.compact rescue NotImplementedError
        Host.compare_marks { GC.start(full_mark: major, immediate_sweep: round.odd?) }
      end
      puts JSON.generate(rounds.transpose.map(&:sum))
    RUBY
    dead, young, old, differences = counts

    assert_equal 0, differences
    [dead, young, old].each { |count| assert_operator count, :>, 50_000 }
  end

  def test_they_agree_after_an_incremental_mark
    counts = in_child(<<~RUBY)
      rounds = Array.new(4) do
        Host.compare_marks do
          before = GC.stat(:major_gc_count)
          GC.start(full_mark: true, immediate_mark: false, immediate_sweep: false)
          objects(10_000) until GC.latest_gc_info(:state) == :none && GC.stat(:major_gc_count) > before
        end
      end
      puts JSON.generate(rounds.transpose.map(&:sum))
    RUBY

    assert_equal 0, counts.last
    assert_operator counts.sum, :>, 100_000
  end

  def test_the_expected_places_are_proven_within_a_few_collections
    assert_equal "proven", proof(:marked, 0)
    assert_equal "unproven", proof(:marked, 0, collections: 2)
  end

  def test_a_collection_that_nobody_saw_leaves_them_unproven
    state = in_child(<<~RUBY)
      state = Host.prove_marks(:marked, 0) { Host.unseen_marks; 6.times { GC.start } }
      puts JSON.generate([state])
    RUBY

    assert_equal ["unproven"], state
  end

  # No object is marked before the first collection.
  def test_a_profile_that_starts_before_the_first_collection
    slots = ["", "0_", "1_"].to_h { |size| ["RUBY_GC_HEAP_#{size}INIT_SLOTS", "400000"] }
    before, samples = child_json(<<~RUBY, env: slots)
      require "json"
      require "memscope"
      before = GC.count
      Memscope::ObjectProfile.start
      kept = Array.new(50_000) { "x" * 10 }
      6.times { GC.start }
      puts JSON.generate([before, Memscope::ObjectProfile.stop.samples])
    RUBY

    assert_equal 0, before
    assert_operator samples, :>=, 0
  end

  def test_bitmaps_at_another_place_are_refused
    [-@bitmap, -8, 8, @bitmap].each do |bytes|
      assert_equal "refused", proof(:marked, bytes), "marked objects, #{bytes} bytes further"
      assert_equal "refused", proof(:uncollectible, bytes), "uncollectible objects, #{bytes} bytes further"
    end
    assert_equal "refused", proof(:start, 8)
  end

  def test_a_difference_after_the_proof_is_noticed
    states = in_child(<<~RUBY)
      proven = Host.prove_marks(:marked, 0) { 6.times { GC.start } }
      still = Host.misplace_proven_marks(:uncollectible, -2 * #{@bitmap}, 0)
      later = Host.misplace_proven_marks(:uncollectible, 0, 251)
      puts JSON.generate([proven, still, later])
    RUBY

    assert_equal %w[proven proven refused], states
  end

  private

  def in_child(body) = child_json("#{OBJECTS}\n#{body}", requires: ["memscope_test"])

  def proof(place, bytes, collections: 6)
    in_child(<<~RUBY).first
      GC.start
      state = Host.prove_marks(:#{place}, #{bytes}) do
        #{collections}.times { |round| $held << objects(3_000); GC.start(full_mark: round.odd?) }
      end
      puts JSON.generate([state])
    RUBY
  end
end
