# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/diagnosed"

# The rules of what the kernel counts: the cgroup, swap, huge pages, mappings.
class DoctorKernelRulesTest < MemscopeTest
  include Diagnosed

  finds(
    huge_pages: [:info, 90, { process_memory: { anonymous_huge_bytes: 90 * MEBIBYTE } }],
    swapped: [:warning, 32, { process_memory: { swap_bytes: 32 * MEBIBYTE } }],
    near_limit: [:warning, 300, { cgroup: { limit_bytes: 330 * MEBIBYTE } }],
    out_of_memory: [:warning, nil, { cgroup: { limit_bytes: 900 * MEBIBYTE, events: { oom_kill: 2 } } }],
    mappings: [:warning, nil, { ledger: { mappings: 57_425 }, environment: { max_mappings: 65_530 } }]
  )

  def test_a_container_almost_full_is_critical
    diagnosis = diagnose(cgroup: { limit_bytes: mebibytes(310) })

    assert_equal %i[critical near_limit], [diagnosis.severity, diagnosis.first.id]
  end

  def test_swap_counts_as_the_platform_has_it
    swapped = { process_memory: { swap_bytes: mebibytes(32) } }

    { "Heroku's quota" => { environment: { variables: { DYNO: "web.1" } } },
      "counts memory and swap together" => { cgroup: { memory_and_swap_limit_bytes: mebibytes(600) } },
      "a separate limit on swap, 100.0 MiB" => { cgroup: { swap_limit_bytes: mebibytes(100) } },
      "no limit on swap" => {} }.each do |words, platform|
      assert_includes finding(diagnose(**swapped, **platform), :swapped).explanation, words
    end
  end

  def test_what_most_mappings_are_of
    stacks = Bodies.row(:stacks, "stacks", 8, children: [Bodies.row(:fibers, "", 8, detail: { stacks: 27_000 })])
    most = { environment: { max_mappings: 65_530 }, rows: [stacks] }
    severities = [49_000, 55_000, 64_000].map { |number| diagnose(**most, ledger: { mappings: number }) }
                                         .map { |one| one.find { |found| found.id == :mappings }&.severity }
    found = finding(diagnose(**most, ledger: { mappings: 55_000 }), :mappings)

    assert_equal %i[info warning critical], severities
    assert_equal "55,000 of 65,530 mappings are in use", found.title
    assert_match(/ Of these mappings, 54,000 are of stacks of fibers\.\z/, found.explanation)
    assert_match(/--paths-to Fiber\nsysctl vm\.max_map_count=\d+\z/, found.remedy)
    assert_equal :inapplicable, diagnose.checked.find { |check| check.id == :mappings }.outcome
  end

  def test_what_cannot_be_read_is_unknown
    diagnosis = diagnose(process_memory: { swap_bytes: nil, anonymous_huge_bytes: nil })
    outcomes = diagnosis.checked.to_h { |check| [check.id, check.outcome] }

    assert_equal %i[unknown unknown], outcomes.values_at(:swapped, :huge_pages)
  end
end
