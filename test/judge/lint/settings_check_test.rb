# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/linted"

# What lint checks whatever serves malloc: variables that it does not read, and allocators that are loaded in vain.
class LintSettingsCheckTest < MemscopeTest
  include Linted

  IDLE = { name: :jemalloc, version: "5.3.0", path: "/lib/libjemalloc.so.2", prefix: "", reason: "idle" }.freeze
  PRIVATE = { **IDLE, path: "/gems/rust.so", prefix: "_rjem_" }.freeze

  def test_jemallocs_under_glibc
    reading = glibc({ MALLOC_CONF: "narenas:2" }, threads: 1)
    problem = assert_problem(reading, :other_allocator, /jemalloc reads it, but glibc serves malloc\. memscope/)

    assert_equal "memscope exec -- COMMAND", problem.replacement
    reading = glibc({ MALLOC_CONF: "narenas:2" }, others: [IDLE.dup])

    assert_problem reading, :other_allocator, /jemalloc reads it, but glibc serves malloc/
  end

  def test_an_allocator_that_is_loaded_but_idle
    problem = assert_problem(glibc(others: [IDLE.dup]), :idle_allocator,
                             %r{\Ajemalloc is loaded, but glibc serves malloc: /lib/libjemalloc\.so\.2: idle\z})

    assert_equal "memscope exec --allocator jemalloc -- COMMAND", problem.replacement
    mimalloc = { **IDLE, name: :mimalloc, path: "/m.so" }

    assert_equal "memscope exec --allocator /m.so -- COMMAND",
                 assert_problem(jemalloc(others: [mimalloc]), :idle_allocator, /\Amimalloc is loaded/).replacement
    [{ prefix: "_rjem_" }, { allocated_bytes: 1 }].each do |used|
      assert_empty glibc(others: [{ **IDLE, **used }]).problems
    end
    assert_equal [:idle_allocator], glibc(others: [{ **IDLE, allocated_bytes: 0 }]).problems.map(&:id)
  end

  def test_what_is_preloaded_and_not_there
    library = { LD_PRELOAD: "/opt/libjemalloc.so.2" }
    problem = assert_problem(glibc(environment_variables: library), :preload_without_effect,
                             /\ALD_PRELOAD names jemalloc, but glibc serves malloc\. The dynamic/)

    assert_equal "memscope exec -- COMMAND", problem.replacement
    [glibc(environment_variables: library, others: [PRIVATE.dup]), jemalloc(environment_variables: library),
     glibc(environment_variables: { LD_PRELOAD: "/opt/libsomething.so" })].each do |reading|
      assert_empty reading.problems
    end
  end

  def test_glibcs_under_jemalloc
    reading = jemalloc(variables: { MALLOC_ARENA_MAX: "2", MALLOC_TRIM_THRESHOLD_: "1" })

    assert_equal [%i[other_allocator info]] * 2, problems(reading)
    assert_equal "unset MALLOC_ARENA_MAX", reading.problems.first.replacement
    assert_empty jemalloc(variables: { GLIBC_TUNABLES: "glibc.rtld.optional_static_tls=4096" }).problems
    problem = assert_problem(jemalloc(variables: { GLIBC_TUNABLES: "glibc.rtld.nns=2:glibc.malloc.arena_max=2" }),
                             :other_allocator, /GLIBC_TUNABLES: glibc reads it/, severity: :info)

    assert_equal "unset GLIBC_TUNABLES", problem.replacement
  end

  def test_a_wrong_prefix
    %i[JE_MALLOC_CONF _RJEM_MALLOC_CONF JEMALLOC_CONF MALLOCCONF].each do |name|
      reading = jemalloc(variables: { name => "narenas:3" }, options: { narenas: 2 })
      problem = assert_problem(reading, :misspelt_variable, /\A#{name}: .*; did you mean MALLOC_CONF\?\z/)

      assert_equal "unset #{name}", problem.replacement
      assert_nil reading.recommended, "its value is not carried over"
    end
    assert_problem jemalloc("narenas:2", variable: "JE_MALLOC_CONF", variables: { MALLOC_CONF: "narenas:3" }),
                   :misspelt_variable, /did you mean JE_MALLOC_CONF\?/
    assert_problem glibc({ JE_MALLOC_CONF: "narenas:3" }), :misspelt_variable,
                   /did you mean MALLOC_CONF\? jemalloc reads that, but glibc serves malloc\z/
  end

  def test_a_private_copys_own_variable
    [jemalloc(variables: { _RJEM_MALLOC_CONF: "narenas:1" }, others: [PRIVATE.dup]),
     glibc({ _RJEM_MALLOC_CONF: "narenas:1" }, others: [PRIVATE.dup])].each { |reading| assert_empty reading.problems }
  end

  def test_misspelt_variables
    { MALLOC_TRIM_THRESHOLD: "MALLOC_TRIM_THRESHOLD_", MALLOC_MMAP_THRESHOLD: "MALLOC_MMAP_THRESHOLD_",
      MALLOC_ARENAS_MAX: "MALLOC_ARENA_MAX", malloc_arena_max: "MALLOC_ARENA_MAX",
      GLIBC_TUNABLE: "GLIBC_TUNABLES" }.each do |name, meant|
      reading = glibc({ name => "65536" }, threads: 1)
      problem = assert_problem(reading, :misspelt_variable, /\A#{name}: .*; did you mean #{meant}\?\z/)

      assert_equal [nil, "unset #{name}"], [reading.recommended, problem.replacement]
    end
    assert_empty glibc({ MALLOC_NANO_ZONE: "0", MallocStackLogging: "1", MALLOC_CONF: "" }, threads: 1).problems
  end

  def test_other_allocators
    reading = lint(LintInputs.other(:mimalloc, { MIMALLOC_PAGE_RESET: "few", MALLOC_CONF: "narenas:2" },
                                    given: { page_reset: ["default", "few", "neither a number nor a word"] }))

    assert_equal %i[invalid_value other_allocator], reading.problems.map(&:id)
    assert_nil reading.recommended
    assert_match(/jemalloc and glibc only/, reading.reasons[:recommended])
    assert_problem lint(LintInputs.other(:musl, { MALLOC_ARENA_MAX: "2" })), :other_allocator, /musl/, severity: :info
    assert_empty lint(LintInputs.other(:unknown, { MALLOC_ARENA_MAX: "2", MALLOC_CONF: "x" })).problems
  end

  def test_a_program_that_is_not_listened_to
    reading = glibc({ MALLOC_ARENA_MAX: "2", MALLOC_CONF: "x" }, secure: true)

    assert_equal [%i[ignored_environment warning], %i[other_allocator warning]], problems(reading)
    assert_nil reading.recommended
    assert_match(/ignores the environment/, reading.reasons[:recommended])
    reading = jemalloc("narenas:3", secure: true)

    assert_equal "unset MALLOC_CONF", assert_problem(reading, :ignored_environment, /set-user-ID/).replacement
    assert_nil reading.recommended
  end
end
