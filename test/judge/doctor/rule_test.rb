# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/diagnosed"
require_relative "../../support/word_files"

# What all rules share: their thresholds. An idle process gets one answer: numbers that hardly move do not change the
# verdict.
class DoctorRuleTest < MemscopeTest
  include Diagnosed

  # A large share of little memory is not worth a remedy, nor is a small share of much.
  def test_both_a_floor_and_a_ratio
    assert_clear :slab_slack, diagnose(malloc: jemalloc(in_use: 20, slab_slack: 15))
    assert_clear :slab_slack, diagnose(malloc: jemalloc(in_use: 900, slab_slack: 100))
    found = assert_found(:warning, :slab_slack, malloc: jemalloc(slab_slack: 64))

    assert_equal [mebibytes(16), 0.15, "rss_bytes"],
                 found.evidence.values_at(:floor_bytes, :floor_ratio, :floor_ratio_of)
  end

  def severity(id, held: nil, **chart)
    diagnosis = Memscope::Doctor.diagnose(Charts.evidence(**chart), previous_severities: held)
    diagnosis.find { |found| found.id == id }&.severity
  end

  def test_within_a_tenth_of_the_threshold
    before = [nil, { slab_slack: :info }, { slab_slack: :warning }]
    { 25 => [nil, nil, nil], 28 => %i[info info warning], 31 => %i[warning warning warning] }
      .each do |mebibytes, expected|
        severities = before.map do |held|
          severity(:slab_slack, held: held, malloc: jemalloc(in_use: 80, slab_slack: mebibytes))
        end

        assert_equal expected, severities, mebibytes
      end
  end

  # Each rule whose severity rests on more than its bytes: below its threshold, beyond it by less than a tenth, and
  # more.
  def test_the_margin_is_every_rules
    { compactable_heap: [0.51, 0.47, 0.44, lambda do |at|
      { ruby_heap: { compactable_bytes: 64 * MEBIBYTE, live_slots: (at * 1_000_000).to_i } }
    end],
      glibc_arenas: [24, 26, 29, lambda do |at|
        { malloc: Charts.glibc(arenas: 12, arenas_in_use: 150, arenas_free: 50 * at / 25, arenas_trimmable: 0) }
      end] }.each do |id, (below, within, beyond, chart)|
      assert_equal [nil, :info, :warning], [below, within, beyond].map { |at| severity(id, **chart.call(at)) }, id
      assert_equal :warning, severity(id, held: { id => :warning }, **chart.call(within)), id
      assert_equal :info, severity(id, held: { id => :info }, **chart.call(within)), id
    end
  end

  def test_freed_pages_in_arenas_within_a_tenth_of_the_threshold
    arenas = ->(at) { [{ index: 0, threads: 2, dirty_bytes: mebibytes(at), dirty_decay_ms: -1 }] }
    severities = [[17], [18], [17, { dirty_pages: :warning }]].map do |at, held|
      severity(:dirty_pages, held: held, malloc: jemalloc(dirty: 100), arenas: arenas.call(at))
    end

    assert_equal %i[info warning warning], severities
  end

  def test_a_finding_that_is_never_more_than_info_stays_so
    assert_equal :info, severity(:native_memory, malloc: Charts.glibc(untracked: 50), held: { native_memory: :warning })
  end

  def test_critical_stays_critical
    chart = { cgroup: { limit_bytes: mebibytes(320) } } # 93.75 %

    severities = [nil, :warning, :critical].map { |held| severity(:near_limit, held: { near_limit: held }, **chart) }

    assert_equal %i[warning warning critical], severities
  end

  ROOM = File.join(ChildProcess::ROOT, "lib/memscope/judge/doctor/")
  NAMES = WordFiles.read("#{ROOM}rules.words").keys.map(&:name)
  PARTS = %w[subject title why returns remedy cost].freeze

  def test_each_text_is_named_by_a_rule
    ids = Memscope::Doctor::Rules.all.map { |rule| rule.id.name }
    sources = Dir["#{ROOM}{,rules/}*.rb"].map { |path| File.read(path) }.join
    symbols = sources.scan(/(?<!:):(\w+)/).flatten + sources.scan(/%i\[(.*?)\]/m).flat_map { |(list)| list.split }

    assert_empty(NAMES.filter_map { |name| name[/\w+\z/] }.uniq - PARTS - symbols)
    assert_empty(NAMES.filter_map { |name| name[/\A(\w+)\./, 1] }.uniq - ids)
  end
end
