# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/diagnosed"

# The rules of glibc's malloc.
class DoctorGlibcRulesTest < MemscopeTest
  include Diagnosed

  finds(
    trimmable: [:warning, 81, { malloc: Charts.glibc(main_free: 90, main_trimmable: 80) }],
    glibc_arenas: [:warning, 50, { malloc: Charts.glibc(arenas: 12, arenas_free: 52, arenas_trimmable: 2) }],
    malloc_thp: [:warning, 48, { malloc: Charts.glibc(main_free: 60, main_trimmable: 10),
                                 allocator: { settings: { hugetlb: 1 } },
                                 process_memory: { anonymous_huge_bytes: 48 * MEBIBYTE, thp_enabled: true } }],
    glibc_holes: [:warning, 120, { malloc: Charts.glibc(main_free: 130, main_trimmable: 10) }]
  )

  # Ruby lets malloc grow between two collections: any process that makes garbage has that much free memory.
  def test_room_for_garbage_is_not_a_warning
    assert_found :info, :trimmable, malloc: Charts.glibc(main_free: 40, main_trimmable: 40)
    assert_found :warning, :trimmable, malloc: Charts.glibc(main_free: 60, main_trimmable: 60)
  end

  def test_trimmable_memory_that_the_machine_does_not_gain
    shared = assert_found :info, :trimmable, malloc: Charts.glibc(main_free: 90, main_trimmable: 80,
                                                                  trimmable_private: 3)
    locked = assert_found :info, :trimmable, malloc: Charts.glibc(main_free: 90, main_trimmable: 0, arenas_trimmable: 0,
                                                                  kept: 80)

    assert_match(/other processes share most of it/, shared.title)
    assert_match(/\Abefore_fork/, shared.remedy)
    assert_equal [mebibytes(3), mebibytes(3)], [shared.recoverable_bytes, shared.recoverable_max_bytes]
    assert_match(/the kernel does not take it back/, locked.title)
    assert_equal [nil, nil, mebibytes(80)], [locked.recoverable_bytes, locked.remedy, locked.affected_bytes]
    assert_match(/are locked \(mlock, mlockall\)/, locked.unrecoverable_reason)
  end

  # glibc 2.43 on arm64 asks for huge pages by default; memory that a trim returns is not a warning.
  def test_who_asks_for_huge_pages
    outcome = lambda do |version, enabled: true, mode: "madvise", **settings|
      diagnosis = diagnose(malloc: Charts.glibc(main_free: 60, main_trimmable: 50),
                           allocator: { version: version, settings: settings }, environment: { thp_mode: mode },
                           process_memory: { anonymous_huge_bytes: 90 * MEBIBYTE, thp_enabled: enabled })
      [diagnosis.find { |found| found.id == :malloc_thp }&.severity,
       diagnosis.checked.find { |check| check.id == :huge_pages }.outcome]
    end

    assert_equal %i[info inapplicable], outcome.call("2.43")
    assert_equal %i[info inapplicable], outcome.call("2.36", hugetlb: 1)
    [["2.42"], ["2.43", { hugetlb: 0 }], ["2.43", { hugetlb: 2 }], ["2.43", { enabled: false }],
     ["2.43", { mode: "always" }]].each do |version, given|
      assert_equal [nil, :found], outcome.call(version, **given.to_h), [version, given].inspect
    end
  end

  def test_few_arenas_are_not_too_many
    assert_clear :glibc_arenas, diagnose(malloc: Charts.glibc(arenas: 2, arenas_free: 52))
  end
end
