# frozen_string_literal: true

# A History of a week, without waiting for it: a process that leaks in malloc, whose Ruby heap breathes with the day,
# and that was suspended for four hours. Its rows are sampled every minute.
module PlantedHistory
  MEBIBYTE = 1_048_576
  DAY = 86_400
  # Bytes or counts at a time; `age` in seconds.
  SERIES = {
    malloc: ->(age) { MEBIBYTE * (120 + (age / 3600.0 * 0.9) + (8 * Math.sin(age / 1900.0))) },
    ruby_heap: ->(age) { MEBIBYTE * (70 + (18 * Math.sin(age * 2 * Math::PI / DAY))) },
    ruby_internal: ->(_age) { MEBIBYTE * 14 }, files: ->(_age) { MEBIBYTE * 22 }, stacks: ->(_age) { MEBIBYTE * 3 },
    jit: ->(_age) { 0 }, shared_memory: ->(_age) { 0 }, memscope: ->(_age) { MEBIBYTE },
    unattributed: ->(_age) { MEBIBYTE / 2 },
    live_slots: ->(age) { 900_000 + (age % 1500 * 100) }, major_gcs: ->(age) { age / 18_000 },
    minor_gcs: ->(age) { age / 60 }, threads: ->(_age) { 6 }
  }.freeze
  ROWS = Memscope::History::ROWS
  BUCKETS = { 10 => 360, 60 => 720, 600 => 1008 }.freeze

  module_function

  # @param now [Time] its end, rounded down to ten minutes
  # @return [Memscope::History] of this process
  def week(now: Time.now)
    ending = (now.to_i / 600 * 600) + 600
    began = ending - (7 * DAY)
    curves = [:rss, *SERIES.keys].map { |id| curve(id, began, ending, ROWS.include?(id) ? 60 : 10) }
    events = [[0, :started], [2.2 * DAY, :forked], [2.3 * DAY, :forked], [(7 * DAY) - 1500, :forked]]
    Memscope::History.capture(
      { running: true, started_at: began * 1000, curves: curves, reasons: {}, cost: Memscope::Cost.of(:T1),
        events: events.map { |age, kind| { at: ((began + age) * 1000).to_i, kind: kind } } }
    )
  end

  # @return [Integer, nil] nil while the process was suspended
  def value(id, age)
    return if (age % (7 * DAY)).between?(3 * DAY, (3 * DAY) + 14_400) || age.between?((7 * DAY) - 900, (7 * DAY) - 720)
    return SERIES.fetch(id)[age].to_i if id != :rss

    ROWS.sum { |row| SERIES.fetch(row)[age].to_i } + ((age % 700) * 4096)
  end

  def curve(id, began, ending, spacing)
    rings = BUCKETS.map do |step, most|
      start = [began, ending - (step * most)].max
      values = (start...ending).step(step).map { |at| value(id, at - began) if ((at - began) % spacing) < step }
      { step_seconds: step, at: start * 1000, min: values.freeze, last: values }
    end
    { id: id, unit: Memscope::History::SERIES.fetch(id), spacing_seconds: spacing, baseline: nil, rings: rings }
  end
end
