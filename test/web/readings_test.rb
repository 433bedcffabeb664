# frozen_string_literal: true

require_relative "../support/web_case"

# Readings that all requests share.
class WebReadingsTest < WebCase
  def test_one_thread_at_a_time_takes_a_costly_reading
    running = most = 0
    slow = lambda do
      most = [most, running += 1].max
      sleep 0.05
      running -= 1
    end
    readings, counts = counting(arenas: slow, mappings: slow, diagnosis_with_forecast: slow)
    counting_kinds = %i[arenas mappings diagnosis_with_forecast]
    counting_kinds.map { |kind| Thread.new { readings.fetch(kind) } }.each(&:join)

    assert_equal [1, 3], [most, counts.size]
  end

  def test_a_reading_rests_ten_times_as_long_as_it_took
    now = 0.0
    { 0.01 => 1.0, 0.25 => 2.5, 7.0 => 30.0 }.each do |seconds, rest|
      readings, counts = counting(clock: -> { now }, ledger: -> { now += seconds })

      readings.fetch(:ledger)
      now += rest - 0.125
      readings.fetch(:ledger)

      assert_equal 1, counts[:ledger]
      now += 0.25
      readings.fetch(:ledger)

      assert_equal 2, counts[:ledger]
    end
  end

  # Consecutive scrapes reach different workers.
  def test_metrics_are_never_old
    readings, counts = counting(clock: -> { 0.0 }, metrics: -> {})
    2.times { readings.fetch(:metrics) }

    assert_equal 2, counts[:metrics]
  end

  # Those that were not used for longest are dropped first.
  def test_few_are_kept
    readings = Memscope::Web::Readings.new(clock: -> { 0.0 })
    object = ->(key) { readings.fetch(:profile, key, &-> { Object.new }) }
    first = object[0]
    second = object[1]
    (2..63).each(&object)

    assert_same first, object[0]
    object[64]

    assert_same first, object[0]
    refute_same second, object[1]
  end

  def test_a_forked_child_reads_for_itself
    readings, = counting(ledger: -> { Process.pid })
    readings.fetch(:ledger)
    reader, writer = IO.pipe
    Process.wait(fork { writer.write(readings.fetch(:ledger)).then { exit!(0) } })

    refute_equal Process.pid, Integer(reader.read_nonblock(20))
  end
end
