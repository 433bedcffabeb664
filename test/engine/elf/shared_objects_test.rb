# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/allocator_fixtures"

# The C test of shared_objects.c again, with other objects loaded before it: c_tests_test.rb runs it without them.
class EngineSharedObjectsTest < MemscopeTest
  SOURCE = "engine/elf/shared_objects_test.c"

  def program = Compiled.program(SOURCE, engine: %w[elf/shared_objects.c])

  def assert_silent_success(command, **options)
    result = ChildProcess.run_command(*command, **options)

    assert_predicate result, :success?, result
    assert_empty result.out
  end

  def test_under_jemalloc
    skip_under_sanitizer

    assert_silent_success program, preload: AllocatorFixtures::JEMALLOC
  end

  def test_with_the_old_hash_table_only
    objects = Compiled.path("sysv")
    Dir.mkdir(objects)
    Compiled.run("cc", "-shared", "-fPIC", "-Wl,--hash-style=sysv", "-o", "#{objects}/libbump.so",
                 File.join(Compiled::ROOT, "test/fixtures/allocators/bump_malloc.c"))

    assert_silent_success program, preload: "#{objects}/libbump.so"
  end
end
