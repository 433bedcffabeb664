# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/exec_launching"

# A program is not started unless the allocator is proved to serve its malloc.
class ProgramProofTest < MemscopeTest
  parallelize_me!

  include ExecLaunching

  def setup
    super
    skip "what is refused was tested before" if ChildProcess::BRIEF
  end

  def test_a_library_that_serves_no_malloc
    library = Compiled.shared("allocators/malloc_conf.c")

    assert_refused "malloc is served by glibc .*, not by #{library}", "--allocator=#{library}"
  end

  def test_an_allocator_that_is_not_known
    library = AllocatorFixtures.shared("bump_malloc")

    assert_refused "no allocator could be proved to serve malloc", "--allocator=#{library}"
  end

  def test_glibc_behind_another_allocator
    assert_refused "could be proved", "--allocator=glibc", LD_PRELOAD: AllocatorFixtures.shared("bump_malloc")
  end

  def test_a_configuration_that_jemalloc_rejects
    ignored = "jemalloc ignores part of its configuration"

    assert_refused "#{ignored}: bogus: .1.: this jemalloc has no option of this name", "--conf=bogus:1"
    assert_refused "#{ignored}: narenas: .x.: jemalloc did not take it", MALLOC_CONF: "narenas:x"
    assert_refused "#{ignored}: narenas: .narenas.: malformed", "--conf=narenas"
  end

  def test_a_configuration_for_another_allocator
    skip "not installed: mimalloc" unless AllocatorFixtures.available?(AllocatorFixtures::MIMALLOC)
    mimalloc = AllocatorFixtures.archive(AllocatorFixtures::MIMALLOC)

    assert_refused "malloc is served by mimalloc .*, and --conf is for jemalloc", "--conf=narenas:2",
                   "--allocator=#{mimalloc}"
  end

  def test_a_proof_that_fails_in_the_program_itself
    ran = exec("--", deceptive_env, *ruby("puts 'started'"))

    assert_exit 74, ran, out: "", err: /\Amemscope exec: malloc is served by glibc .*; the program is not started$/
  end

  def test_a_variable_that_is_set_afterwards
    script = make("unset.rb", "#!/usr/bin/env -S LD_PRELOAD= #{RbConfig.ruby}\nputs 'started'\n")

    assert_refused "malloc is served by glibc .*, not by jemalloc", command: [script]
    assert_exit 0, exec("--", "env", "MALLOC_CONF=", "LD_LIBRARY_PATH=/a", *ruby("puts #{MAPPED}")),
                out: %("libjemalloc"\n), err: ""
  end
end
