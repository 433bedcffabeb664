# frozen_string_literal: true

# Histories with known truth: what each row does is given as a function of time.
module Histories
  MEBIBYTE = 1_048_576
  START = Time.utc(2026, 11, 21, 2)
  # MiB at the start.
  ROWS = { ruby_heap: 60, live_bytes: 50, malloc: 120, malloc_in_use: 100, held: 70, stacks: 2, jit: 0,
           ruby_internal: 5, files: 15, unattributed: 1 }.freeze
  # Series that are parts of others, and so not of RSS.
  PARTS = %i[live_bytes malloc_in_use held].freeze
  SPACING = { rss: 10, live_bytes: 10, major_gcs: 10, requests: 10, held: 600 }.freeze
  COUNTS = %i[major_gcs requests].freeze
  private_constant :SPACING, :COUNTS

  module_function

  # @param hours [Numeric] how long
  # @param without [Array<Symbol>] series that have no samples
  # @param baseline [Integer, nil] of RSS, in a forked process
  # @param major_gcs [Numeric] an hour
  # @param requests [Numeric] an hour
  # @param reasons [Hash]
  # @yieldparam hour [Float] since the start
  # @yieldreturn [Hash{Symbol => Numeric, nil}] MiB that rows have more than at the start; nil for no sample at all
  # @return [Memscope::History]
  def plant(hours, without: [], baseline: nil, major_gcs: 60, requests: 0, reasons: {})
    samples = (0...(hours * 360)).map do |at|
      grown = yield(at / 360.0)
      grown && sample(grown, at, { major_gcs: major_gcs, requests: requests })
    end
    names = samples.compact.first.keys - without
    curves = names.map { |name| curve(name, samples.map { |values| values&.fetch(name) }, baseline) }
    at = (START + (hours * 3600)).strftime(Memscope::Field::TIME)
    Memscope::History.from_h({ schema: 1, kind: "history", memscope: "0.1.0", ruby: "3.1.2", pid: 4711, at: at,
                               running: true, started_at: time(0), curves: curves, events: [], reasons: reasons,
                               cost: { tier: "T1", wall_us: 1, gvl_us: 1, scratch_bytes: 0 } })
  end

  def sample(grown, at, counts)
    rows = ROWS.to_h { |name, start| [name, start + grown.fetch(name, 0)] }
    noise = 0.3 * Math.sin(at * 12.9898) * Math.sin(at * 78.233)
    rss = rows.except(*PARTS).values.sum + noise
    bytes = { rss: rss, uss: rss - 20 + grown.fetch(:uss, 0), **rows }.transform_values { |mib| (mib * MEBIBYTE).to_i }
    sampled = bytes.select { |name, _| (at % (SPACING.fetch(name, 60) / 10)).zero? || at == 6 }
    counted = counts.transform_values { |per_hour| (at * per_hour / 360.0).floor }
    { **bytes.transform_values { nil }, **sampled, **counted }
  end

  # The rings keep the last hour, the last twelve, and all.
  def curve(name, values, baseline)
    rings = { 10 => 360, 60 => 720, 600 => 1008 }.map do |step, most|
      buckets = values.each_slice(step / 10).map(&:compact)
      lost = [buckets.size - most, 0].max
      { step_seconds: step, at: time(lost * step), min: buckets.drop(lost).map(&:min),
        last: buckets.drop(lost).map(&:last) }
    end
    { id: name, unit: COUNTS.include?(name) ? "count" : "bytes", spacing_seconds: SPACING.fetch(name, 60),
      baseline: (baseline if name == :rss), rings: rings }
  end

  def time(seconds) = (START + seconds).strftime(Memscope::Field::TIME)
end
