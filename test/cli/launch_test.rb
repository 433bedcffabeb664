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

class AllocatorChoiceTest < LaunchTest
  def choice(option = nil, variable = nil)
    Launch::AllocatorChoice.read(option, { "MEMSCOPE_ALLOCATOR" => variable }.compact)
  end

  def test_the_option_counts_before_the_variable_and_that_before_the_default
    assert_equal %w[glibc off jemalloc jemalloc],
                 [choice("glibc", "off"), choice(nil, "off"), choice(nil, ""), choice].map(&:name)
    assert_predicate choice("off"), :off?
    assert_equal(["libjemalloc.so.2", nil, "/lib/x.so"], %w[jemalloc glibc /lib/x.so].map do |name|
      choice(name).library
    end)
  end

  def test_what_is_none
    error = assert_raises(Memscope::Invalid) { choice("tcmalloc") }

    assert_equal '--allocator: given "tcmalloc", allowed: jemalloc, glibc, off, or the path of a shared library',
                 error.message
    ["on", "jemalloc glibc", "off\nglibc\n", "/a.so\n/b.so\n", "lib/x.so"].each do |text|
      assert_match(/\AMEMSCOPE_ALLOCATOR: given ".*", allowed: .*library \(an absolute one\)\z/,
                   assert_raises(Memscope::Invalid, text) { choice(nil, text) }.message)
    end
  end

  def test_a_path_is_taken_from_the_working_directory
    assert_equal File.expand_path("lib/x.so"), choice("lib/x.so").library
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
      environment.preload("libjemalloc.so.2")
      environment.configure("narenas:2")
    end

    assert_equal({ "LD_PRELOAD" => "libjemalloc.so.2", "MALLOC_CONF" => "narenas:2" }, changes)
    assert_empty notes
  end

  def test_what_is_preloaded_stays
    changes, notes = changed("LD_PRELOAD" => " /a.so:/b.so ") { |environment| environment.preload("/j.so") }

    assert_equal({ "LD_PRELOAD" => "/j.so:/a.so:/b.so" }, changes)
    assert_equal ["LD_PRELOAD: /j.so is put before /a.so:/b.so"], notes
  end

  def test_the_same_library_is_preloaded_once
    changes, notes = changed("LD_PRELOAD" => "/j.so") { |environment| environment.preload("/j.so") }

    assert_equal [{ "LD_PRELOAD" => "/j.so" }, []], [changes, notes]
  end

  def test_preloaded_allocators_are_dropped
    given = { "LD_PRELOAD" => "/usr/lib/libjemalloc.so.2 /a.so:libtcmalloc_minimal.so.4" }
    changes, notes = changed(given, &:drop_allocators)

    assert_equal({ "LD_PRELOAD" => "/a.so" }, changes)
    assert_equal ["LD_PRELOAD: /usr/lib/libjemalloc.so.2:libtcmalloc_minimal.so.4 is removed, /a.so is kept"], notes
    assert_equal [{ "LD_PRELOAD" => nil }, ["LD_PRELOAD: libmimalloc.so is removed"]],
                 changed("LD_PRELOAD" => "libmimalloc.so", &:drop_allocators)
    assert_equal [{}, []], changed("LD_PRELOAD" => "/a.so", &:drop_allocators)
  end

  def test_pairs_that_are_there_stay_unless_given
    given = { "MALLOC_CONF" => "narenas:8,background_thread:true" }
    changes, notes = changed(given) { |environment| environment.configure("narenas:2,tcache:false") }

    assert_equal({ "MALLOC_CONF" => "background_thread:true,narenas:2,tcache:false" }, changes)
    assert_equal ["MALLOC_CONF: narenas:2,tcache:false replaces narenas:8",
                  "MALLOC_CONF: background_thread:true is kept"], notes
  end

  def test_a_path_that_cannot_be_preloaded
    ["/a b/j.so", "/a:b/j.so"].each do |path|
      error = assert_raises(Launch::Refusal) { Launch::Environment.new({}).preload(path) }

      assert_match(/LD_PRELOAD splits paths at spaces and colons/, error.message)
    end
  end
end

class LaunchProgramTest < LaunchTest
  def program(*command) = Launch::Program.new(command)

  def with_script(text)
    in_directory do |directory|
      path = File.join(directory, "script")
      File.binwrite(path, text)
      File.chmod(0o755, path)
      yield path
    end
  end

  def test_a_program_of_this_c_library_takes_a_preload
    ["ruby", "sh", "env", RbConfig.ruby].each { |name| assert_nil program(name).obstacle("libjemalloc.so.2"), name }
  end

  def test_nothing_is_known_of_scripts_damaged_files_and_what_is_not_there
    header = File.binread(RbConfig.ruby, 64)
    ["#!/bin/sh\n", "", header, header[0, 20], header[0, 32] + ("\xFF".b * 32)].each do |bytes|
      with_script(bytes) do |path|
        assert_equal [nil, nil], [program(path).obstacle("libjemalloc.so.2"), program(path).stranger]
      end
    end

    ["nowhere-to-be-found", "/nowhere/script", "", "/"].each do |name|
      assert_equal [nil, nil], [program(name).obstacle("libjemalloc.so.2"), program(name).stranger]
    end
  end

  def test_what_is_not_this_ruby
    assert_equal([nil, nil, "/bin/true"], ["ruby", "env", "/bin/true"].map { |name| program(name).stranger })
    assert_match(%r{/sh\z}, program("sh").stranger)
  end

  def test_what_env_sets
    environment = Launch::Environment.new({})
    environment["LD_PRELOAD"] = "/x.so"

    error = assert_raises(Launch::Refusal) do
      program("/usr/bin/env", "A=1", "LD_PRELOAD=2=3", "ruby").check_overridden(environment, "memscope exec")
    end
    assert_match(/\ALD_PRELOAD is set by env in the command, .*: env LD_PRELOAD=\.\.\. memscope exec -- \.\.\./,
                 error.message)
    [%w[env A=1 ruby -e LD_PRELOADED=1], %w[ruby LD_PRELOAD=]].each do |command|
      assert_nil program(*command).check_overridden(environment, "memscope exec")
    end
  end
end

class HandoffTest < LaunchTest
  Handoff = Launch::Handoff

  # The orders that this process finds if it acts as the program, and what it leaves in the environment.
  def taken(environment)
    before = ENV.to_h
    %w[RUBYOPT RUBYLIB].each { |name| ENV.delete(name) } # Bundler's, if it runs the tests
    ENV.update(environment.changes)
    [Handoff.read, ENV.to_h.select { |name, _| name.match?(/\A(RUBYOPT|RUBYLIB|MEMSCOPE_AUTORUN_.*)\z/) }]
  ensure
    ENV.replace(before)
  end

  def given(mode, environment = {}, **order)
    Launch::Environment.new(environment).tap { |changed| Handoff.write(mode, changed, **order) }
  end

  def test_an_order_arrives_whole_and_leaves_nothing
    given = given("prove", { "RUBYOPT" => "-W0 -rset" }, output: "/tmp/a b=c\n\"é\xFF", json: nil, every: 1.5)
    orders, left = taken(given)
    order = orders.fetch("prove")

    assert_equal [["prove"], "/tmp/a b=c\n\"é\xFF", 1.5], [orders.keys, order[:output], order[:every]]
    assert_nil order[:json]
    assert_equal({ "RUBYOPT" => "-W0 -rset" }, left)
  end

  def test_an_order_may_be_kept_for_what_the_process_becomes
    %w[report profile leaks].each do |mode|
      environment = given(mode)

      assert_equal environment.changes, taken(environment).last
    end
  end

  def test_several_orders_share_one_file_which_the_last_one_takes_away
    environment = given("report")
    kept = environment.changes.dup
    Handoff.write("prove", environment, expected: "jemalloc")
    orders, left = taken(environment)

    assert_equal %w[prove report], orders.keys
    assert_equal kept, left
    assert_equal 1, left["RUBYOPT"].scan("autorun").size
  end

  def test_another_process_withdraws_it
    assert_equal [{}, { "RUBYOPT" => "-W0" }], taken(given("report", { "RUBYOPT" => "-W0" }, pid: 1))
  end
end
