# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/diagnosed"

# Numbers that rules derive from the evidence, where the reading's own number would mislead.
class DoctorFiguresTest < MemscopeTest
  include Diagnosed

  # YJIT's metadata is neither a C extension's nor an unknown structure of Ruby's. YJIT does not count what malloc adds
  # to its blocks.
  def test_metadata_of_a_compiler_is_not_native_memory
    chart = lambda do |untracked, metadata|
      { malloc: Charts.glibc(untracked: untracked, detail: { jit_metadata_bytes: mebibytes(metadata) }) }
    end
    since = earlier(**chart.call(4, 2))
    grown = later(since, **chart.call(62, 42))

    assert_clear :native_growth, grown
    assert_clear :native_memory, grown
    assert_includes finding(later(since, **chart.call(90, 40)), :native_memory).explanation,
                    "Ruby's just-in-time compiler holds 40.0 to 60.0 MiB more."
  end

  # 80 MiB in use were never written to: 40 of them become resident, and then 12 that are allocated anew.
  def test_memory_that_becomes_resident_is_no_growth
    since = earlier(malloc: Charts.jemalloc(untracked: 90, not_resident: -80))
    grown = [0, 12].map do |amount|
      later(since, malloc: Charts.jemalloc(untracked: 90 + amount, in_use: 120 + amount, not_resident: -40))
    end
    found = finding(grown.last, :native_growth)

    assert_clear :native_growth, grown.first
    assert_equal mebibytes(12), found.affected_bytes
    assert_includes found.explanation, "In 60.0 s, it grew from 65.0 MiB to 77.0 MiB. "
  end

  # glibc also counts in full the blocks that were never written to, such as 40 MiB of VM stacks. The free memory beside
  # them is resident, but not in use.
  def test_memory_in_use_that_is_not_resident_is_not_native_memory_beside_free_memory
    evidence = Charts.evidence(malloc: Charts.glibc(main_free: 60, detail: { in_use_bytes: mebibytes(160) }))

    assert_equal mebibytes(2), Memscope::Doctor::Figures.new(evidence).untracked_bytes
  end

  # 30 MiB of garbage before, 50 of it now: of the 40 MiB more that objects own, 20 are reachable.
  def test_growth_of_objects_is_that_of_reachable_ones
    before, now = [30, 50].map { |amount| Charts.garbage(amount, returned: [0, amount]) }
    found = finding(later(earlier(garbage: before), malloc: Charts.glibc(arenas_in_use: 60), garbage: now),
                    :object_growth)

    assert_equal [:warning, mebibytes(20)], [found.severity, found.affected_bytes]
    assert_equal [mebibytes(30), mebibytes(50)], found.evidence.values_at(:earlier_garbage_bytes, :garbage_bytes)
  end
end
