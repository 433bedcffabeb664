# frozen_string_literal: true

require_relative "../../test_helper"

# The forecast of a garbage collection, and of what returns malloc's memory after it, against what the process loses.
class ForecastTest < MemscopeTest
  parallelize_me!

  COUNT = 400_000
  # Or jemalloc returns pages by itself between the forecast and the truth.
  NEVER = { "MALLOC_CONF" => "dirty_decay_ms:-1,muzzy_decay_ms:-1" }.freeze

  DROP = <<~RUBY
    require "memscope"
    require "json"

    def private_bytes = Memscope.process_memory.uss_bytes
    def made(count)
      random = Random.new(1)
      Array.new(count) do |index|
        case index % 4
        when 0 then "x" * (24 + random.rand(400))
        when 1 then Array.new(4 + random.rand(30), index)
        when 2 then "y" * random.rand(2000)
        else { index => 1, 2 => 3 }
        end
      end
    end
    def drop(count, kept_one_in)
      Thread.new do
        objects = made(count)
        KEPT.concat(objects.values_at(*(0...count).step(kept_one_in))) if kept_one_in
        nil
      end.join
    end
    KEPT = []
    LEVERS = Memscope.allocator.name == :jemalloc ? %i[gc tcache purge] : %i[gc trim]
    Memscope.purge(*LEVERS) # loads what it needs
  RUBY

  # @return [Array] the forecast and the truth, of what no other process shares
  def forecast_and_truth(preload, kept_one_in, env = {})
    child_json(<<~RUBY, preload: preload, env: { **NEVER, **env })
      #{DROP}
      GC.disable
      drop(#{COUNT}, #{kept_one_in.inspect})
      runs = GC.count
      forecast = Memscope.purge(*LEVERS, dry_run: true)
      raise "a dry run has collected" unless GC.count == runs
      before = private_bytes
      Memscope.purge(*LEVERS)
      puts JSON.generate([forecast.predicted_private.minmax, before - private_bytes,
                          forecast.levers.map { |lever| [lever.name, lever.reason] }])
    RUBY
  end

  # It is not known how many pages 3.2 and 3.3 return: the lower bound counts none, the upper bound all.
  both_allocators "garbage of mixed sizes within a tenth" do |preload|
    skip_under_sanitizer
    (least, most), truth, reasons = forecast_and_truth(preload, nil)
    share = RUBY_VERSION.between?("3.2", "3.4") ? 5 : 10

    assert_operator truth, :>, COUNT * 150
    [least, most].each { |bound| assert_in_delta truth, bound, truth / share, reasons }
  end

  # One object in 51 is kept, and keeps its page: one of each kind in turn.
  both_allocators "garbage between what is kept" do |preload|
    skip_under_sanitizer
    (least, most), truth, reasons = forecast_and_truth(preload, 51)

    assert_operator truth, :>, COUNT * 80
    [least, most].each { |bound| assert_in_delta truth, bound, truth / 10, reasons }
  end

  # A page of malloc's that cannot be read, such as one that is swapped out, hides what lies behind it.
  def test_garbage_behind_a_page_that_cannot_be_read
    skip_under_sanitizer
    all, rest = child_json(<<~RUBY, requires: ["memscope_test"])
      #{DROP}
      GC.disable
      forecast = -> { Memscope.purge(*LEVERS, dry_run: true).predicted_private.minmax }
      Host.malloc_blocks(100, 2_000)
      -> { made(100_000); nil }.call
      all = forecast.call
      Host.hide_blocks
      puts JSON.generate([all, forecast.call])
    RUBY

    assert_operator all.first, :>, 10_000_000
    assert_operator rest.last, :>=, all.first
    assert_operator rest.first, :<=, all.first
  end

  # Thread caches that keep most of the garbage, or all of it.
  [1_000, 65_535, 65_536].each do |count|
    define_method("test_garbage_that_stays_in_a_cache_of_#{count}_chunks_of_each_size") do
      skip_under_sanitizer
      env = { "GLIBC_TUNABLES" => "glibc.malloc.tcache_count=#{count}" }
      (least, most), truth = forecast_and_truth(nil, 50, env)

      assert_operator least, :<=, truth + 1_048_576
      assert_operator most, :>=, truth
    end
  end

  def test_without_a_collection_the_forecast_reads_no_garbage
    levers = Memscope.purge(:gc, dry_run: true).levers

    assert_equal [:gc], levers.map(&:name)
    skip_under_sanitizer

    assert_operator levers.first.predicted_bytes, :>=, 0
  end

  # The lazy sweep of the last collection frees what the allocator's figures must already count as free. Within a
  # fifth: under Ruby 3.3 and 4.0, an eighth off was measured, for a reason not yet known.
  both_allocators "a collection under way is finished first" do |preload|
    skip_under_sanitizer
    skip_with_transient_heap_in_malloc if preload
    (least, most), truth, finished, text = child_json(<<~RUBY, preload: preload, env: NEVER)
      #{DROP}
      Thread.new { 200_000.times { |index| "x" * (30 + (index % 900)) } }.join
      GC.disable
      Thread.new { 200_000.times { |index| "x" * (30 + (index % 900)) } }.join
      GC.start(immediate_sweep: false)
      forecast = Memscope.purge(*LEVERS, dry_run: true)
      GC.enable
      before = private_bytes
      Memscope.purge(*LEVERS)
      puts JSON.generate([forecast.predicted_private.minmax, before - private_bytes, forecast.finished_gc?,
                          forecast.to_s.split.join(" ")])
    RUBY

    assert finished
    assert_match(/a garbage collection in progress was finished; nothing else was changed/, text)
    assert_operator truth, :>, 50 * 1_048_576
    [least, most].each { |bound| assert_in_delta truth, bound, truth / 5, text }
  end

  # Data whose type does not say how much it holds.
  both_allocators "garbage of an extension that reports nothing" do |preload|
    skip_under_sanitizer
    (least, most), truth, unfollowed = child_json(<<~RUBY, preload: preload, env: NEVER, requires: %w[openssl])
      #{DROP}
      digits = "f" * 2_000
      GC.start
      GC.disable
      Thread.new { 10_000.times { OpenSSL::BN.new(digits, 16) } }.join
      forecast = Memscope.purge(*LEVERS, dry_run: true)
      GC.enable
      before = private_bytes
      Memscope.purge(*LEVERS)
      puts JSON.generate([forecast.predicted_private.minmax, before - private_bytes, forecast.uncounted_bytes])
    RUBY

    assert_operator truth, :>, 4 * 1_048_576
    assert_operator least, :<=, truth
    assert_operator most, :>=, truth
    assert_operator most, :<=, least + unfollowed + (4 * 1_048_576)
  end
end
