# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/value/ttl_cache"

class TtlCacheTest < MemscopeTest
  def setup
    @now = 100.0
    @reads = 0
  end

  def cache(**options)
    @cache ||= Memscope::TtlCache.new(clock: -> { @now }, **options)
  end

  def fetch(ttl)
    cache.fetch(ttl) { @reads += 1 }
  end

  def test_keeps_a_value_until_it_is_too_old
    assert_equal 1, fetch(10)
    @now += 9.9

    assert_equal 1, fetch(10)
    @now += 0.2

    assert_equal 2, fetch(10)
  end

  def test_the_age_may_depend_on_what_the_value_took
    ttl = ->(took) { took * 10 }
    cache.fetch(ttl) { @now += 2 }
    @now += 19.9

    assert_in_delta 102.0, fetch(ttl)
    @now += 0.2

    assert_equal 1, fetch(ttl)
  end

  def test_whoever_waits_shares_what_was_read_meanwhile
    cache = Memscope::TtlCache.new
    reading = Queue.new
    go_on = Queue.new
    first = Thread.new do
      cache.fetch(0) do
        reading << true
        go_on.pop
      end
    end
    reading.pop
    second = Thread.new { cache.fetch(0) { flunk } }
    Thread.pass until second.stop?
    go_on << :shared

    assert_equal %i[shared shared], [first.value, second.value]
  end

  def test_an_error_is_not_kept
    assert_raises(IOError) { cache.fetch(10) { raise IOError } }
    assert_equal 1, fetch(10)
  end

  def test_an_error_is_kept_on_demand
    cache(keep_errors: true)

    assert_raises(IOError) { cache.fetch(10) { raise IOError } }
    assert_raises(IOError) { fetch(10) }
    @now += 11

    assert_equal 1, fetch(10)
  end

  def test_an_old_value_is_not_returned_after_an_error
    fetch(10)
    @now += 11

    assert_raises(IOError) { cache.fetch(10) { raise IOError } }
    assert_equal 2, fetch(10)
  end

  def test_a_forked_child_starts_without_a_value
    fetch(Float::INFINITY)
    reader, writer = IO.pipe
    pid = fork do
      writer.write(fetch(Float::INFINITY))
      exit!
    end
    Process.wait(pid)
    writer.close

    assert_equal "2", reader.read
    assert_equal 1, fetch(Float::INFINITY)
  end
end
