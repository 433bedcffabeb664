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
  SPACING = { rss: 10, live_bytes: 10, major_gcs: 10, held: 600 }.freeze
  private_constant :SPACING

  module_function

  # @param hours [Numeric] how long
  # @param without [Array<Symbol>] series that have no samples
  # @param baseline [Integer, nil] of RSS, in a forked process
  # @param major_gcs [Numeric] an hour
  # @param reasons [Hash]
  # @yieldparam hour [Float] since the start
  # @yieldreturn [Hash{Symbol => Numeric, nil}] MiB that rows have more than at the start; nil for no sample at all
  # @return [Memscope::History]
  def plant(hours, without: [], baseline: nil, major_gcs: 60, reasons: {})
    samples = (0...(hours * 360)).map do |at|
      grown = yield(at / 360.0)
      grown && sample(grown, at, major_gcs)
    end
    names = samples.compact.first.keys - without
    curves = names.map { |name| curve(name, samples.map { |values| values&.fetch(name) }, baseline) }
    at = (START + (hours * 3600)).strftime(Memscope::Field::TIME)
    Memscope::History.from_h({ schema: 1, kind: "history", memscope: "0.1.0", ruby: "3.1.2", pid: 4711, at: at,
                               running: true, started_at: time(0), curves: curves, events: [], reasons: reasons,
                               cost: { tier: "T1", wall_us: 1, gvl_us: 1, scratch_bytes: 0 } })
  end

  def sample(grown, at, major_gcs)
    rows = ROWS.to_h { |name, start| [name, start + grown.fetch(name, 0)] }
    noise = 0.3 * Math.sin(at * 12.9898) * Math.sin(at * 78.233)
    rss = rows.except(*PARTS).values.sum + noise
    bytes = { rss: rss, uss: rss - 20 + grown.fetch(:uss, 0), **rows }.transform_values { |mib| (mib * MEBIBYTE).to_i }
    sampled = bytes.select { |name, _| (at % (SPACING.fetch(name, 60) / 10)).zero? || at == 6 }
    { **bytes.transform_values { nil }, **sampled, major_gcs: (at * major_gcs / 360.0).floor }
  end

  # The rings keep the last hour, the last twelve, and all.
  def curve(name, values, baseline)
    rings = { 10 => 360, 60 => 720, 600 => 1008 }.map do |step, most|
      buckets = values.each_slice(step / 10).map(&:compact)
      lost = [buckets.size - most, 0].max
      { step_seconds: step, at: time(lost * step), min: buckets.drop(lost).map(&:min),
        last: buckets.drop(lost).map(&:last) }
    end
    { id: name, unit: name == :major_gcs ? "count" : "bytes", spacing_seconds: SPACING.fetch(name, 60),
      baseline: (baseline if name == :rss), rings: rings }
  end

  def time(seconds) = (START + seconds).strftime(Memscope::Field::TIME)
end
