# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/diagnosed"

# The rules of jemalloc.
class DoctorJemallocRulesTest < MemscopeTest
  include Diagnosed

  DIRTY = { dirty: 100 }.freeze

  finds(
    slab_slack: [:warning, 64, { malloc: Charts.jemalloc(slab_slack: 64) }],
    muzzy_pages: [:info, 64, { malloc: Charts.jemalloc(muzzy: 64) }],
    retained_resident: [:warning, 64, { malloc: Charts.jemalloc(retained_resident: 64) }]
  )

  def dirty(malloc: {}, **chart)
    diagnose(malloc: jemalloc(**DIRTY, **malloc), **chart).find { |found| found.id == :dirty_pages }
  end

  def assert_dirty(severity, confidence, found)
    assert_equal [severity, confidence, mebibytes(100), mebibytes(100)],
                 [found.severity, found.confidence, found.affected_bytes, found.recoverable_bytes]
  end

  # MiB of freed pages in one of two arenas.
  def arenas(mebibytes, **given)
    busy = { index: 0, threads: 2, dirty_bytes: mebibytes(100 - mebibytes), dirty_decay_ms: 10_000 }
    [busy, { **busy, index: 1, dirty_bytes: mebibytes(mebibytes), **given }]
  end

  def test_decay_is_off
    assert_dirty :warning, :certain, dirty(arenas: arenas(60, dirty_decay_ms: -1))
    assert_dirty :info, :likely, dirty(arenas: arenas(10, dirty_decay_ms: -1))
  end

  def test_arenas_without_threads
    assert_dirty :warning, :certain, dirty(arenas: arenas(60, threads: 0))
    assert_dirty :info, :likely, dirty(arenas: arenas(10, threads: 0))
    assert_nil dirty(arenas: arenas(60, threads: 0), malloc: { background_threads: 1 })
  end

  def test_background_threads_lost_by_a_fork
    lost = { allocator: { settings: { background_thread: true } }, environment: { forked: true } }

    assert_dirty :warning, :certain, dirty(**lost)
    assert_nil dirty(malloc: { background_threads: 1 }, **lost)
  end

  def test_a_fork_that_gives_nothing_back
    forked = { environment: { forked: true } }

    assert_dirty :warning, :likely, dirty(**forked, later: { dirty_npurge: 7 })
    assert_dirty :info, :likely, dirty(**forked, later: { dirty_npurge: 8 })
    assert_dirty :info, :likely, dirty(**forked)
    assert_dirty :info, :likely, dirty(environment: { forked: true, cpu_seconds: 9.5 }, later: { dirty_npurge: 7 })
  end

  # jemalloc counts pages never written to as well.
  def test_dirty_pages_that_may_not_be_resident
    sure, unsure = [-5, -20].map { |amount| dirty(malloc: { not_resident: amount }) }

    assert_equal [mebibytes(100), mebibytes(95)], [sure.affected_bytes, sure.evidence[:least_resident_bytes]]
    assert_equal "jemalloc keeps 100.0 MiB of freed pages", sure.title
    assert_equal [mebibytes(100), mebibytes(80)], [unsure.affected_bytes, unsure.evidence[:least_resident_bytes]]
    assert_equal "jemalloc keeps up to 100.0 MiB of freed pages", unsure.title
    assert_match(/\AUp to \d+ % of RSS is dirty pages: /, unsure.explanation)
    assert_match(/\. Some were never written to, but at least 80\.0 MiB in all is resident\.\z/, unsure.explanation)
  end

  def test_dirty_pages_of_which_none_is_known_to_be_resident
    unknown = dirty(malloc: { not_resident: -100 })

    assert_equal 0, unknown.evidence[:least_resident_bytes]
    assert_match(/ Some were never written to\.\z/, unknown.explanation)
  end

  # A page that a forked process shares stays in memory, even if this process returns it.
  def test_dirty_pages_that_are_shared_or_locked
    assert_equal [mebibytes(30), mebibytes(100)], recoverable(dirty(malloc: { shared: 70 }))
    assert_equal [0, mebibytes(35)], recoverable(dirty(malloc: { shared: 195 }))
    locked = { detail: { locked_bytes: mebibytes(235) } }

    assert_equal [0, 0], recoverable(dirty(malloc: locked))
    assert_equal [0, 0], recoverable(dirty(malloc: { detail: { madvise_refused: true } }))
  end

  def recoverable(found) = [found.recoverable_bytes, found.recoverable_max_bytes]

  # One reading cannot tell an idle process from one that has just freed memory.
  def test_an_idle_process
    assert_dirty :info, :likely, dirty
    earlier = diagnose(malloc: jemalloc(**DIRTY), ledger: { at: EARLIER, pid: 7 })

    assert_dirty :warning, :certain, dirty(ledger: { at: LATER, pid: 7 }, since: earlier)
    assert_nil dirty(ledger: { at: LATER, pid: 7 }, since: earlier,
                     snapshot: { jemalloc: { **jemalloc(**DIRTY)[:totals], dirty_purged: 101 } })
  end
end
