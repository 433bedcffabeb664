# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/compiled"
require "memscope/cli/launch"
require "tmpdir"

class LaunchTest < MemscopeTest
  Launch = Memscope::Launch

  def in_directory
    Dir.mktmpdir("memscope") { |directory| yield File.realpath(directory) }
  end
end

class LaunchEnvironmentTest < LaunchTest
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

class LaunchProgramTest < LaunchTest
  def with_script(text)
    in_directory do |directory|
      path = File.join(directory, "script")
      File.binwrite(path, text)
      File.chmod(0o755, path)
      yield path
    end
  end

  def test_nothing_is_known_of_scripts_and_of_what_is_not_there
    ["#!/bin/sh\n", ""].each { |text| with_script(text) { |path| assert_nil Launch.stranger(path) } }

    ["nowhere-to-be-found", "/nowhere/script", "", "/"].each { |name| assert_nil Launch.stranger(name) }
  end

  def test_what_is_not_this_ruby
    assert_equal([nil, "/bin/true"], ["ruby", "/bin/true"].map { |name| Launch.stranger(name) })
    assert_match(%r{/sh\z}, Launch.stranger("sh"))
    assert_nil Launch.stranger("env")
  end
end

class HandoffTest < LaunchTest
  Handoff = Launch::Handoff

  # The orders that this process finds if it acts as the program, and what it leaves in the environment.
  def taken(environment)
    before = ENV.to_h
    ENV.delete("RUBYOPT") # Bundler's, if it runs the tests
    ENV.update(environment.changes)
    [Handoff.read, ENV.to_h.select { |name, _| name.match?(/\A(RUBYOPT|MEMSCOPE_AUTORUN_.*)\z/) }]
  ensure
    ENV.replace(before)
  end

  def given(mode, environment = {}, **order)
    Launch::Environment.new(environment).tap { |changed| Handoff.write(mode, changed, **order) }
  end

  def test_an_order_arrives_whole_and_leaves_nothing
    given = given("proof", { "RUBYOPT" => "-W0 -rset" }, output: "/tmp/a b=c\n\"é\xFF", json: nil, every: 1.5)
    orders, left = taken(given)
    order = orders.fetch("proof")

    assert_equal [["proof"], "/tmp/a b=c\n\"é\xFF", 1.5], [orders.keys, order[:output], order[:every]]
    assert_nil order[:json]
    assert_equal({ "RUBYOPT" => "-W0 -rset" }, left)
  end

  def test_an_order_may_be_kept_for_what_the_process_becomes
    %w[report profile leaks requires].each do |mode|
      environment = given(mode)

      assert_equal environment.changes, taken(environment).last
    end
  end

  def test_several_orders_share_one_file_which_the_last_one_takes_away
    environment = given("report")
    kept = environment.changes.dup
    Handoff.write("proof", environment, expected: "jemalloc")
    orders, left = taken(environment)

    assert_equal %w[proof report], orders.keys
    assert_equal kept, left
    assert_equal 1, left["RUBYOPT"].scan("autorun").size
  end

  def test_another_process_withdraws_it
    assert_equal [{}, { "RUBYOPT" => "-W0" }], taken(given("report", { "RUBYOPT" => "-W0" }, pid: 1))
  end
end
