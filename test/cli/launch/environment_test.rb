# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/cli/launch"

class LaunchEnvironmentTest < MemscopeTest
  Launch = Memscope::Launch

  def changed(given = {})
    environment = Launch::Environment.new(given)
    yield environment
    [environment.changes, environment.notes]
  end

  def test_nothing_is_there
    changes, notes = changed do |environment|
      environment.serve("jemalloc")
      environment.configure("narenas:2")
    end

    assert_equal({ "LD_PRELOAD" => "libjemalloc.so.2", "MALLOC_CONF" => "narenas:2" }, changes)
    assert_empty notes
  end

  def test_what_is_preloaded_stays
    changes, notes = changed("LD_PRELOAD" => " /a.so:/b.so ") { |environment| environment.serve("/j.so") }

    assert_equal({ "LD_PRELOAD" => "/j.so:/a.so:/b.so" }, changes)
    assert_equal ["LD_PRELOAD:  /a.so:/b.so  becomes /j.so:/a.so:/b.so"], notes
  end

  def test_the_same_library_is_preloaded_once
    changes, notes = changed("LD_PRELOAD" => "/j.so") { |environment| environment.serve("/j.so") }

    assert_equal [{}, []], [changes, notes]
  end

  def test_preloaded_allocators_are_dropped
    given = { "LD_PRELOAD" => "/usr/lib/libjemalloc.so.2 /a.so:libtcmalloc_minimal.so.4" }
    changes, notes = changed(given) { |environment| environment.serve("glibc") }

    assert_equal({ "LD_PRELOAD" => "/a.so" }, changes)
    assert_equal ["LD_PRELOAD: #{given['LD_PRELOAD']} becomes /a.so"], notes
    assert_equal [{ "LD_PRELOAD" => nil }, ["LD_PRELOAD: libmimalloc.so becomes unset"]],
                 changed("LD_PRELOAD" => "libmimalloc.so") { |environment| environment.serve("glibc") }
    assert_equal [{}, []], changed("LD_PRELOAD" => "/a.so") { |environment| environment.serve("glibc") }
  end

  def test_pairs_that_are_there_stay_unless_given
    given = { "MALLOC_CONF" => "narenas:8,background_thread:true" }
    changes, notes = changed(given) { |environment| environment.configure("narenas:2,tcache:false") }

    assert_equal({ "MALLOC_CONF" => "narenas:2,background_thread:true,tcache:false" }, changes)
    assert_equal ["MALLOC_CONF: narenas:8,background_thread:true becomes " \
                  "narenas:2,background_thread:true,tcache:false"], notes
  end

  def test_a_path_that_cannot_be_preloaded
    ["/a b/j.so", "/a:b/j.so"].each do |path|
      error = assert_raises(Launch::Refusal) { Launch::Environment.new({}).serve(path) }

      assert_match(/LD_PRELOAD splits paths at spaces and colons/, error.message)
    end
  end
end
