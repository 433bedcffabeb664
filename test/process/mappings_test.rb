# frozen_string_literal: true

require_relative "../test_helper"

class MappingsTest < MemscopeTest
  def test_the_list_is_the_kernels
    listed = File.readlines("/proc/self/maps").map { |line| line[/\A\S+ \S+/] }
    mappings = Memscope.mappings
    ours = mappings.map { |mapping| format("%x-%x %s", mapping.start, mapping.end, mapping.permissions) }

    assert_operator (ours & listed).size, :>=, listed.size * 0.9 # others come and go, or grow, between the two lists
    assert_equal mappings.map(&:start).sort, mappings.map(&:start)
  end

  both_allocators "rows sum to what is resident, and mappings to the RSS" do |preload|
    child_json(<<~RUBY, preload: preload).then { |answer| assert_equal [0, true, true, true], answer }
      kept = Array.new(50_000) { "x" * rand(2_000) }
      mappings = Memscope.mappings
      ledger = Memscope.ledger
      heap = mappings.sum { |mapping| mapping.rows.fetch(:ruby_heap, 0) }
      malloc = mappings.sum { |mapping| mapping.rows.sum { |path, bytes| path.start_with?("malloc") ? bytes : 0 } }
      puts [mappings.sum(&:resident_bytes) + mappings.unmapped_bytes - mappings.rss_bytes,
            mappings.all? { |mapping| mapping.rows.values.sum == mapping.resident_bytes },
            (heap - ledger[:ruby_heap].bytes).abs < 1_048_576, (malloc - ledger[:malloc].bytes).abs < 1_048_576].inspect
    RUBY
  end

  # smaps is an independent source for each mapping's resident bytes: ours lie between its values before and after. Only
  # mappings that exist throughout are compared: a sanitizer maps each large string anew.
  def test_residency_is_smaps
    before = File.read("/proc/self/smaps")
    mappings = Memscope.mappings
    before, after = [before, File.read("/proc/self/smaps")].map { |text| resident_bytes(text) }
    lasting = mappings.select { |mapping| [before, after].all? { |smaps| smaps.key?(mapping.start...mapping.end) } }
    off = lasting.sum do |mapping|
      least, most = [before, after].map { |smaps| smaps[mapping.start...mapping.end] }.minmax
      (mapping.resident_bytes - mapping.resident_bytes.clamp(least, most)).abs
    end

    assert_operator off, :<=, 2 * 1_048_576
    assert_operator lasting.sum(&:resident_bytes), :>=, mappings.rss_bytes / 4
  end

  # Resident bytes by the mapping's address range.
  def resident_bytes(smaps)
    range = nil
    smaps.each_line.with_object({}) do |line, resident|
      range = Range.new(*line[/\A\S+/].split("-").map(&:hex), true) if line.match?(/\A\h+-\h+ /)
      resident[range] = line[/\d+/].to_i * 1024 if line.start_with?("Rss:")
    end
  end

  def test_survives_json
    mappings = Memscope.mappings

    assert_equal mappings, Memscope::Mappings.from_h(JSON.parse(mappings.to_json))
    assert_equal mappings.first.end - mappings.first.start, mappings.first.size_bytes
    assert_equal mappings.mappings.size, mappings.each.size
  end
end
