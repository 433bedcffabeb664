# frozen_string_literal: true

require "json"

# Histories with known truth: each row is a function of time. The samples are added to the rings of a forked process,
# which judges them.
module Histories
  MEBIBYTE = 1_048_576
  # Seconds of CLOCK_BOOTTIME.
  START = 600_000
  # MiB at the start.
  ROWS = { ruby_heap: 60, live_bytes: 50, malloc: 120, malloc_in_use: 100, held: 70, stacks: 2, jit: 0,
           ruby_internal: 5, files: 15, shared_memory: 0, memscope: 0, unattributed: 1 }.freeze
  # Series that are parts of others, and so not of RSS.
  PARTS = %i[live_bytes malloc_in_use held].freeze
  SPACING = { rss: 10, live_bytes: 10, major_gcs: 10, requests: 10, held: 600 }.freeze
  # As long as a judgement without earlier ones.
  REPLAYED = 3 * 3600
  # Growth of 40 MiB/h by layer: which rows, and the parts of them, grow.
  LEAKS = {
    objects: %i[ruby_heap live_bytes malloc malloc_in_use held], native: %i[malloc malloc_in_use],
    free: %i[malloc], stacks: %i[stacks], code: %i[jit], shared: %i[shared_memory], unattributed: %i[unattributed]
  }.freeze
  # What the samples were taken by.
  Sampler = Struct.new(:now, :reasons) do
    def spacings = ROWS.to_h { |name, _| [name, SPACING.fetch(name, 60)] }
  end
  private_constant :SPACING, :REPLAYED, :Sampler

  module_function

  # @param hours [Numeric] how long
  # @param cgroup [#limit_bytes, #working_set_bytes, nil]
  # @param reasons [Hash]
  # @param given [Hash] see `add`; `baseline` is the RSS of the process that forked this one
  # @yield see `add`
  # @return [Memscope::Verdict]
  def judge(hours, cgroup: nil, reasons: {}, **given, &grown)
    Memscope::Verdict.from_json(forked(hours, **given, grown: grown) { verdict(hours, cgroup, reasons).to_json })
  end

  # @return [Array(Memscope::Verdict, Memscope::History)]
  def plant(hours, reasons: {}, **given, &grown)
    lines = forked(hours, **given, grown: grown) do
      "#{verdict(hours, nil, reasons).to_json}\n#{Memscope.history.to_json}"
    end.lines
    [Memscope::Verdict.from_json(lines[0]), Memscope::History.from_json(lines[1])]
  end

  # A leak of 40 MiB/h in a layer, as `judge` or `plant` returns it.
  def leak(layer, hours = 5, by: :judge, **given)
    names = LEAKS.fetch(layer)
    slope = 40.0 / (names - PARTS).size
    public_send(by, hours, **given) { |hour| names.to_h { |name| [name, slope * hour] } }
  end

  # Adds samples to the history of this process.
  #
  # @param after [Numeric] hours
  # @param hours [Numeric] until
  # @param without [Array<Symbol>] series that have no samples
  # @param late [Numeric] hours without samples of all series but RSS
  # @param held_until [Numeric] hours
  # @param major_gcs [Numeric] an hour
  # @param requests [Numeric] an hour
  # @yieldparam hour [Float] since the start
  # @yieldreturn [Hash{Symbol => Numeric, nil}] MiB that rows have more than at the start; nil for no sample at all
  def add(hours, after: 0, without: [], late: 0, held_until: hours, major_gcs: 60, requests: 0)
    ((after * 360).ceil...(hours * 360)).each do |at|
      grown = yield(at / 360.0) or next

      values = sample(grown, at, { major_gcs: major_gcs, requests: requests }).except(*without)
      values = values.slice(:rss) if at < late * 360
      values.delete(:held) if at > held_until * 360
      native.add_to_history(values, START + (at * 10))
    end
  end

  # @return [Memscope::Verdict] of this process's history
  def verdict(hours, cgroup = nil, reasons = {}, replayed: REPLAYED)
    Memscope::Verdict.of(Sampler.new(START + (hours * 3600), reasons), cgroup: cgroup, replayed: replayed)
  end

  # @return [Time] of the clock that histories have
  def time(seconds) = Time.now - Process.clock_gettime(Process::CLOCK_BOOTTIME) + START + seconds

  def native = Memscope.const_get(:Native)

  # What the block returns in a forked process, whose history is empty at first.
  def forked(hours, grown:, baseline: nil, **given)
    reader, writer = IO.pipe
    pid = child do
      native.open_history
      native.add_to_history({ rss: baseline }, START - 600) if baseline
      Process.wait(child do # which has the last sample as its baseline
        add(hours, **given, &grown)
        writer.write(yield)
      end)
    end
    writer.close
    reader.read.tap { Process.wait(pid) }
  ensure
    [reader, writer].each(&:close)
  end

  def child
    fork do
      yield
    ensure
      exit!
    end
  end

  def sample(grown, at, counts)
    rows = ROWS.to_h { |name, start| [name, start + grown.fetch(name, 0)] }
    noise = 0.3 * Math.sin(at * 12.9898) * Math.sin(at * 78.233)
    rss = rows.except(*PARTS).values.sum + noise
    bytes = { rss: rss, uss: rss - 20 + grown.fetch(:uss, 0), **rows }.transform_values { |mib| (mib * MEBIBYTE).to_i }
    sampled = bytes.select { |name, _| (at % (SPACING.fetch(name, 60) / 10)).zero? || at == 6 }
    { **sampled, **counts.transform_values { |per_hour| (at * per_hour / 360.0).floor } }
  end
end
