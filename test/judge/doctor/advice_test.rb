# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/diagnosed"

# Sentences and commands that several rules give.
class DoctorAdviceTest < MemscopeTest
  include Diagnosed

  # Whether only a restart returns pages between used blocks is known after a collection: garbage may keep them.
  def test_garbage_may_keep_what_no_lever_returns
    { glibc_arenas: [Charts.glibc(arenas: 12, arenas_free: 52, arenas_trimmable: 2), /MALLOC_ARENA_MAX/],
      glibc_holes: [Charts.glibc(main_free: 130, main_trimmable: 10), /memscope exec /],
      slab_slack: [jemalloc(slab_slack: 64), /memscope report /] }.each do |id, (malloc, remedy)|
      unjudged, judged = [40 * MEBIBYTE, 100_000].map do |bytes|
        assert_found(:warning, id, malloc: malloc, ledger: { garbage_max_bytes: bytes })
      end

      assert_match(/\AUp to 40\.0 MiB in use may be garbage\. A collection may free/,
                   unjudged.unrecoverable_reason)
      assert_match(/\Amemscope doctor --pid \d+ --gc\n#{remedy}/, unjudged.remedy)
      assert_match(/\Athe first command takes a full GC/, unjudged.remedy_cost)
      refute_match(/no trim|only a restart/, "#{unjudged.title} #{unjudged.explanation}")
      assert_equal :likely, unjudged.confidence
      assert_match(/no trim returns|no lever/, judged.unrecoverable_reason)
      assert_match(/\A#{remedy}/, judged.remedy)
    end
  end

  def test_growth_of_objects_names_what_is_known_of_their_holder
    { { graph_at: 1_795_000_000_000, holder: Charts.holder(40) } =>
        "In the heap graph of 2026-11-18 11:06:40 UTC, Cache @all → Hash holds 40.0 MiB, mostly in 1,200 Order.",
      { census_seconds: 61.2, grown: Charts.grown(30) } =>
        "In 61 s between the last two censuses, Order grew most, by 30.0 MiB." }.each do |objects, sentence|
      assert_includes object_growth(objects).explanation, sentence
    end
    small = { graph_at: 1, holder: Charts.holder(1), census_seconds: 61.2, grown: Charts.grown(0.5) }

    refute_match(/heap graph|censuses/, object_growth(small).explanation)
  end

  def object_growth(objects)
    finding(diagnose(malloc: Charts.glibc(arenas_in_use: 60), since: earlier, objects: objects,
                     ledger: { at: LATER, pid: 7 }), :object_growth)
  end

  # Images, contexts of V8: native memory that belongs to few objects, whose number is all that is known.
  def test_native_memory_names_objects_that_report_no_size
    few = { "Vips::Image" => [50, 90], "Store" => [1, 3] }
    objects = { census_seconds: 60.0,
                unsized: few.map { |name, (before, after)| Memscope::Diff.row(name, before: before, after: after) } }
    sentence = "Between the last two censuses, 40 Vips::Image, 2 Store were added, whose memory Ruby cannot measure. " \
               "`memscope heap --pid 7 --paths-to CLASS` shows what retains them."
    grown = later(earlier, malloc: Charts.glibc(untracked: 60), objects: objects)

    assert_includes finding(grown, :native_growth).explanation, sentence
    assert_includes finding(grown, :native_memory).explanation, sentence
    refute_match(/last two censuses, /, later(earlier, malloc: Charts.glibc(untracked: 60)).to_s)
    held = later(earlier, malloc: Charts.glibc(arenas_in_use: 60), objects: objects)

    refute_match(/last two censuses, /, held.to_s)
  end
end
