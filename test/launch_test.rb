# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/compiled"
require "memscope/launch"
require "timeout"
require "tmpdir"

class LaunchTest < MemscopeTest
  Launch = Memscope::Launch

  def in_directory
    Dir.mktmpdir("memscope") { |directory| yield File.realpath(directory) }
  end
end

class AllocatorChoiceTest < LaunchTest
  Choice = Launch::AllocatorChoice

  def choice(option = nil, **environment)
    Choice.read(option, { "XDG_CONFIG_HOME" => "/nowhere", **environment.transform_keys(&:to_s) })
  end

  def with_file(text)
    in_directory do |directory|
      path = File.join(directory, "allocator")
      File.write(path, text)
      yield path
    end
  end

  def test_the_option_counts_before_the_variable_and_that_before_the_file
    with_file("/from/a/file.so") do |path|
      assert_equal "glibc", choice("glibc", MEMSCOPE_ALLOCATOR: "off", MEMSCOPE_ALLOCATOR_FILE: path).name
      assert_equal "off", choice(MEMSCOPE_ALLOCATOR: "off", MEMSCOPE_ALLOCATOR_FILE: path).name
      assert_equal "/from/a/file.so", choice(MEMSCOPE_ALLOCATOR: "", MEMSCOPE_ALLOCATOR_FILE: path).name
    end
  end

  def test_a_file_of_the_user
    in_directory do |directory|
      { "glibc" => directory, "off" => File.join(directory, ".config") }.each do |name, place|
        FileUtils.mkdir_p(File.join(place, "memscope"))
        File.write(File.join(place, "memscope", "allocator"), "#{name}\n")
      end

      assert_equal "glibc", choice(XDG_CONFIG_HOME: directory).name
      assert_equal "off", choice(XDG_CONFIG_HOME: "", HOME: directory).name
    end
  end

  def test_a_file_may_hold_comments
    with_file("# for this host\n\n  glibc \n") do |path|
      assert_equal "glibc", choice(MEMSCOPE_ALLOCATOR_FILE: path).name
    end
  end

  def test_what_is_none
    error = assert_raises(Launch::Misuse) { choice("tcmalloc") }

    assert_equal '--allocator: given "tcmalloc", allowed: jemalloc, glibc, off, or the path of a shared library',
                 error.message
    assert_match(/\AMEMSCOPE_ALLOCATOR: given "on", allowed: .*library \(an absolute one\)\z/,
                 assert_raises(Launch::Misuse) { choice(MEMSCOPE_ALLOCATOR: "on") }.message)
    ["", "# nothing\n", "jemalloc glibc", "off\nglibc\n", "/a.so\n/b.so\n", "lib/x.so", "\xFF\n"].each do |text|
      with_file(text) do |path|
        error = assert_raises(Launch::Misuse, text.inspect) { choice(MEMSCOPE_ALLOCATOR_FILE: path) }

        assert_match(/\A#{path}: given ".*", allowed: jemalloc, glibc, off, or /, error.message)
      end
    end
  end

  def test_a_named_file_that_is_not_there
    error = assert_raises(Launch::Refusal) { choice(MEMSCOPE_ALLOCATOR_FILE: "/nowhere/allocator") }

    assert_equal "/nowhere/allocator: No such file or directory", error.message
  end

  def test_a_file_that_is_none
    in_directory do |directory|
      pipe = File.join(directory, "allocator")
      File.mkfifo(pipe)
      link = File.join(directory, "link")
      File.symlink("allocator", link)
      { pipe => "fifo", link => "fifo", directory => "directory", "/dev/null" => "characterSpecial" }
        .each do |path, type|
        error = assert_raises(Launch::Refusal) { Timeout.timeout(5) { choice(MEMSCOPE_ALLOCATOR_FILE: path) } }

        assert_equal "#{path}: given a #{type}, allowed: a regular file", error.message
      end
      FileUtils.rm(pipe)
      File.write(pipe, "off\n")

      assert_equal "off", choice(MEMSCOPE_ALLOCATOR_FILE: link).name
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
  def program(*command, search_path: ENV.fetch("PATH")) = Launch::Program.new(command, search_path)

  def with_script(text)
    in_directory do |directory|
      path = File.join(directory, "script")
      File.write(path, text)
      File.chmod(0o755, path)
      yield path
    end
  end

  def assert_unavailable(status, *command, **options)
    error = assert_raises(Launch::Program::Unavailable) { program(*command, **options).executable }

    assert_equal status, error.status, error.message
  end

  def test_a_command_is_searched_as_execvp_does
    with_script("#!/bin/sh\n") do |path|
      place = File.dirname(path)

      assert_equal path, program("script", search_path: "/nowhere:#{place}").path
      assert_equal "/bin/sh", program("sh", search_path: nil).path
      Dir.chdir(place) { assert_equal "./script", program("script", search_path: "/nowhere:").path }
      File.chmod(0o644, path)

      assert_unavailable 126, "script", search_path: place
      assert_unavailable 126, path
      assert_unavailable 126, place
      assert_unavailable 126, File.join(path, "below")
    end
    assert_unavailable 127, "script", search_path: "/nowhere"
    assert_unavailable 127, "/nowhere/script"
    assert_unavailable 127, ""
  end

  def test_what_runs_a_script
    shell = File.realpath("/bin/sh")
    ["#!/bin/sh\n", "#! /bin/sh -e\n", "echo no first line\n", ""].each do |text|
      with_script(text) { |path| assert_equal shell, File.realpath(program(path).executable), text }
    end
    ["#!#{RbConfig.ruby}\n", "#!/usr/bin/env ruby\n", "#!/usr/bin/env -S A=1 ruby -w\n"].each do |text|
      with_script(text) { |path| assert_predicate program(path), :ruby?, text }
    end
  end

  # Like `bundle` in a relocatable Ruby.
  def test_a_shell_script_that_runs_the_ruby_beside_it
    text = <<~SH
      #!/bin/sh
      # -*- ruby -*-
      # This file was generated by RubyGems.
      _=_\\
      =begin
      bindir="${0%/*}"
      exec "$bindir/ruby" "-x" "$0" "$@"
      =end
      #!/usr/bin/env ruby
    SH
    with_script(text) do |path|
      File.symlink(RbConfig.ruby, File.join(File.dirname(path), "ruby"))

      assert_predicate program(path, "exec"), :ruby?
    end
    with_script(text.sub("# -*- ruby -*-\n", "")) { |path| refute_predicate program(path), :ruby? }
  end

  def test_env_is_followed
    assert_predicate program("env", "A=1", "ruby"), :ruby?
    refute_predicate program("env", "sh"), :ruby?
    refute_predicate program("env"), :ruby?
    assert_unavailable 127, "env", "nowhere-to-be-found"
    assert_match(/cannot tell which variables this keeps/,
                 assert_raises(Launch::Refusal) { program("env", "-i", "ruby").executable }.message)
  end

  # Another Ruby, for instance, cannot load memscope's extension.
  def test_env_looks_for_the_program_in_the_path_that_it_sets
    Dir.mktmpdir do |directory|
      other = File.join(directory, "ruby")
      FileUtils.cp("/bin/true", other)

      assert_equal other, program("env", "PATH=/nowhere", "A=1", "PATH=#{directory}:/bin", "ruby").executable
      assert_equal other, program("env", "PATH=#{directory}:/usr/bin:/bin", "env", "ruby").executable
      assert_predicate program("env", "NOPATH=#{directory}", "ruby"), :ruby?
      assert_unavailable 127, "env", "PATH=/nowhere", "ruby"
    end
  end

  def test_what_env_sets_on_the_way
    with_script("#!/usr/bin/env -S A=1 LD_X=2=3 ruby -w\n") do |path|
      assert_equal %w[B A LD_X], program("env", "B=", path, "C=1").assigned
      assert_equal %w[A], program("env", "A=1").assigned
      assert_empty program("ruby", "A=1").assigned
    end
  end

  def test_a_script_without_its_interpreter
    with_script("#!/nowhere/sh\n") { |path| assert_unavailable 127, path }
    with_script("#!\n") do |path|
      assert_match(/names no interpreter/, assert_raises(Launch::Refusal) { program(path).executable }.message)
    end
    with_script("") do |path|
      File.write(path, "#!#{path}\n")

      assert_match(/too many nested scripts/, assert_raises(Launch::Refusal) { program(path).executable }.message)
    end
  end

  def test_the_dynamic_linker
    assert_match(/ld-linux|ld64|ld-musl/, program("ruby").dynamic_linker)
  end

  def test_a_damaged_executable
    header = File.binread(RbConfig.ruby, 64)
    [header, header[0, 20], header[0, 4], header.dup.tap { |bytes| bytes.setbyte(4, 9) },
     header[0, 32] + ("\xFF".b * 32)].each do |bytes|
      with_script(bytes) do |path|
        File.binwrite(path, bytes)

        assert_raises(Launch::Refusal) { program(path).dynamic_linker }
      end
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
    %w[report profile].each do |mode|
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
