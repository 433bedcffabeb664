# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/linted"

# What lint recommends under glibc's malloc, and which of its settings are problems.
class LintGlibcTest < MemscopeTest
  include Linted

  def given(**values) = values.to_h { |name, (source, text, ignored)| [name, [source, text, ignored]] }

  def test_arenas_by_threads_and_cpus
    { { threads: 5 } => "MALLOC_ARENA_MAX=2", { threads: 1 } => nil, { threads: 5, cpus: 1 } => "MALLOC_ARENA_MAX=1",
      { threads: 5, cpus: 8, ractors: 4 } => "MALLOC_ARENA_MAX=5" }.each do |situation, expected|
      reading = glibc(**situation)

      expected ? assert_equal(expected, reading.recommended) : assert_nil(reading.recommended)

      assert_empty reading.problems
    end
    reading = glibc(threads: 5)

    assert_match(/up to 16 arenas each keep .*, and 2 suffice for 5 threads on 2 CPUs/,
                 reading.recommendations[0].reason)
    assert_equal 16, reading.find { |setting| setting.name == "arena_max" }.value
    assert_match(/defaults suit/, glibc(threads: 1).reasons[:recommended])
    assert_empty glibc(threads: nil, options: { arena_max: 16 }).problems, "no number of threads is made up"
  end

  def test_arenas_against_threads_and_cpus
    [[nil, 5, 2, nil, false], [nil, 16, 2, nil, true], [nil, 16, 64, 1.0, true], [nil, 16, 64, nil, false],
     [64, 40, 8, nil, true], [64, 3, 2, nil, false]].each do |maximum, threads, cpus, cpu_limit, excessive|
      variables = maximum ? { MALLOC_ARENA_MAX: maximum.to_s } : {}
      reading = glibc(variables, options: { arena_max: maximum }, threads: threads, cpus: cpus, cpu_limit: cpu_limit,
                                 given: maximum ? { arena_max: ["MALLOC_ARENA_MAX", maximum.to_s] } : {})

      assert_equal excessive ? [%i[too_many_arenas info]] : [], problems(reading), [maximum, threads, cpus]
      assert_equal "MALLOC_ARENA_MAX=#{maximum && !excessive ? maximum : [cpu_limit || 2, 2].min.to_i}",
                   reading.recommended
    end
  end

  # What is given in GLIBC_TUNABLES and has no variable of its own stays there.
  def test_tunables_that_are_kept
    text = "glibc.rtld.optional_static_tls=16384:glibc.malloc.arena_max=3:glibc.malloc.tcache_count=4"
    given = { arena_max: %w[GLIBC_TUNABLES 3], tcache_count: %w[GLIBC_TUNABLES 4] }
    reading = glibc({ GLIBC_TUNABLES: text }, options: { arena_max: 3, tcache_count: 4 }, given: given)

    assert_empty reading.problems
    assert_equal "MALLOC_ARENA_MAX=3", reading.recommended
  end

  def test_tunables_that_are_wrong
    none = "glibc's malloc has no tunable of this name"
    reading = glibc({ GLIBC_TUNABLES: "glibc.malloc.arenamax=2" }, threads: 1,
                                                                   given: { arenamax: ["GLIBC_TUNABLES", "2", none] })
    problem = assert_problem(reading, :invalid_value, /\AGLIBC_TUNABLES: arenamax, given "2": #{none}/)

    assert_equal "unset GLIBC_TUNABLES", problem.replacement
    ["malloc.arena_max=2", "glibc.malloc.arena_max:2"].each do |text|
      reading = glibc({ GLIBC_TUNABLES: text }, threads: 1)
      problem = assert_problem(reading, :invalid_value, /valid: glibc\.malloc\.NAME/)

      assert_equal "unset GLIBC_TUNABLES", problem.replacement
    end
  end

  def test_values_that_are_wrong
    reading = glibc({ MALLOC_ARENA_MAX: "none" }, given: { arena_max: ["default", "none", "not a number"] }, threads: 1)
    problem = assert_problem(reading, :invalid_value, /MALLOC_ARENA_MAX: arena_max, given "none": not a number/)

    assert_equal "unset MALLOC_ARENA_MAX", problem.replacement
    reading = glibc({ MALLOC_TRIM_THRESHOLD_: "128k" }, options: { trim_threshold: 128 }, threads: 1,
                                                        given: { trim_threshold: %w[MALLOC_TRIM_THRESHOLD_ 128k] })

    problem = assert_problem(reading, :invalid_value, /given "128k": glibc reads 128/)

    assert_equal [nil, "unset MALLOC_TRIM_THRESHOLD_"], [reading.recommended, problem.replacement]
  end

  def test_what_does_harm
    { MALLOC_TRIM_THRESHOLD_: [:trim_threshold, 4 << 30],
      MALLOC_TOP_PAD_: [:top_pad, 1 << 30] }.each do |variable, (name, value)|
      reading = glibc({ variable => value.to_s }, options: { name => value }, threads: 1,
                                                  given: { name => [variable.name, value.to_s] })
      problem = assert_problem(reading, :never_returned, /#{name} \(.* MiB\): glibc keeps this much/)

      assert_equal "unset #{variable}", problem.replacement
    end
    reading = glibc({ MALLOC_PERTURB_: "165" }, options: { perturb: 165 }, given: { perturb: %w[MALLOC_PERTURB_ 165] })

    assert_equal "unset MALLOC_PERTURB_", assert_problem(reading, :debugging, /for debugging only/).replacement
    assert_equal "MALLOC_ARENA_MAX=2", reading.recommended
  end

  def test_who_calls_mallopt
    assert_match(%r{\Athe program, /lib/libx\.so may have changed},
                 glibc(mallopt_callers: ["", "/lib/libx.so"]).reasons[:mallopt])
  end
end
