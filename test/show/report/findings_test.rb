# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/diagnosed"

# A diagnosis as text.
class FindingsPageTest < MemscopeTest
  include Diagnosed

  def test_text
    text = diagnose(**SICK).to_s

    assert_match(/^  1 critical and 2 warnings\. RSS 349\.0 MiB; 100\.0 MiB can be released now\./, text)
    assert_match(/^  CRITICAL 300\.0 MiB of the container's/, text)
    assert_match(/^  WARNING  jemalloc keeps 100\.0 MiB of freed pages/, text)
    assert_match(/^           > memscope purge --pid \d+ purge$/, text)
    assert_match(/^           > Memscope\.tune\(background_thread: true\)$/, text)
    assert_match(/^           Up to 10\.0 MiB in use may be garbage\. A collection/, text)
  end

  def test_after_a_collection
    collected = { pause_us: 40_000, returned_bytes: mebibytes(30), unshared_bytes: mebibytes(5) }

    assert_includes diagnose(ledger: { collected: collected }).to_s,
                    "Garbage was collected first, in 40 ms, RSS fell by 30.0 MiB, and 5.0 MiB is\n    no longer"
    assert_includes diagnose(ledger: { collected: { **collected, returned_bytes: 0 } }).to_s,
                    ", RSS did not change, and 5"
    refute_match(/no longer shared/, diagnose(ledger: { collected: { **collected, unshared_bytes: 4_096 } }).to_s)
  end

  def test_the_first_line_says_what_goes_back
    slack = diagnose(malloc: jemalloc(slab_slack: 64, in_use: 16))
    both = diagnose(malloc: jemalloc(slab_slack: 64, in_use: 16, dirty: 200))

    assert_match(/^  1 warning\. RSS [\d.]+ MiB\.$/, slack.to_s)
    assert_match(/^  1 warning\. RSS [\d.]+ MiB; 200\.0 MiB can be released now\.$/, both.to_s)
  end

  # A trim or purge after a collection returns what is free already, too; a compaction, other pages or the same.
  def test_the_first_line_counts_free_memory_once
    garbage = Charts.garbage(40, returned: [115, 120])
    dirty = { malloc: jemalloc(dirty: 100), arenas: [{ dirty_bytes: mebibytes(100), dirty_decay_ms: -1 }] }
    sparse = { ruby: "3.3.1", compactable_bytes: mebibytes(30), compactable_min_bytes: mebibytes(30),
               live_slots: 100_000, old_objects: 100_000 }

    { {} => /; 81\.0 MiB can be/, { garbage: garbage } => /; 115\.0 to 120\.0 MiB can be/,
      { garbage: garbage, ruby_heap: sparse } => /; 115\.0 to 150\.0 MiB can be/,
      { garbage: garbage, **dirty } => /; 115\.0 to 120\.0 MiB can be/ }.each do |chart, amount|
      assert_match amount, diagnose(malloc: Charts.glibc(main_free: 90, main_trimmable: 80), **chart).to_s
    end
  end
end
