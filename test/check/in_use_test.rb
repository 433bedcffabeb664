# frozen_string_literal: true

require_relative "../test_helper"

# What other threads leave as garbage is neither counted nor blamed, though they run while memory is counted.
class CheckInUseTest < MemscopeTest
  parallelize_me!

  LITTER = <<~RUBY
    class Dropped; end
    GC.disable # each thread's collections would free what the other has left
    Thread.new { loop { 100.times { [Dropped.new, "x" * 1000] }; Thread.pass } }
  RUBY

  both_allocators "garbage of other threads" do |preload|
    dropped, blocks = child_json(<<~RUBY, preload: preload, requires: %w[json memscope])
      #{LITTER}
      counts = Memscope::Check.const_get(:InUse)
      read = Array.new(8) do
        5.times { ObjectSpace.define_finalizer(Object.new, proc { sleep 0.002 }) } # a collection lets other threads run
        counts.read.then { |count| [count.objects["Dropped"].to_i, count.blocks] }
      end
      puts JSON.generate(read.drop(2).transpose)
    RUBY

    assert_operator dropped.max, :<=, 5
    assert_operator blocks.max - blocks.min, :<=, 300 unless preload # jemalloc counts its caches' blocks
  end

  def test_what_is_kept_beside_garbage_of_other_threads
    growth, places = child_json(<<~RUBY, requires: %w[json memscope])
      #{LITTER}
      kept = []
      check = Memscope::Check.run(in: :process, iterations: 20, runs: 3, warmup: 20) { kept << ("k" * 1000) }
      strings = check.grown.find { |one| one.name == "String" }
      puts JSON.generate([strings&.growth, strings&.places&.map { |place| place.lineno - __LINE__ }])
    RUBY

    assert_equal 3, growth&.size
    growth.each { |number| assert_in_delta 20, number, 5 }
    assert_equal [-2], places
  end
end
