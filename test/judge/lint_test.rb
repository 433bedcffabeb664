# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/lint_inputs"
require "json"
require "memscope/judge/lint"

class LintTest < MemscopeTest
  NOT_TAKEN = "jemalloc did not take it"

  def lint(inputs)
    Memscope::Lint.capture(Memscope::Lint.body_of(inputs).update(cost: LintInputs::COST.dup))
  end

  def jemalloc(...) = lint(LintInputs.jemalloc(...))

  def glibc(...) = lint(LintInputs.glibc(...))

  def problems(reading) = reading.problems.map { |problem| [problem.id, problem.severity] }

  def assert_problem(reading, id, text, severity: :warning)
    problem = reading.problems.find { |candidate| candidate.id == id }

    assert problem, "no #{id} among #{reading.problems.map(&:text)}"
    assert_match text, problem.text
    assert_equal severity, problem.severity
    problem
  end

  # The inputs for a MALLOC_CONF whose every pair jemalloc accepts.
  def taken(**values)
    { text: values.map { |name, value| "#{name}:#{value}" }.join(","), options: values,
      given: values.to_h { |name, value| [name, ["MALLOC_CONF", value.to_s]] } }
  end

  def taking(taken, **situation)
    jemalloc(taken[:text], options: taken[:options], given: taken[:given], **situation)
  end
end

class LintJemallocRecommendationTest < LintTest
  def test_quotes_for_a_shell
    reading = taking(taken(prof_prefix: "it's a dump"), cpus: 2)

    assert_equal "MALLOC_CONF=prof_prefix:it\\'s\\ a\\ dump,narenas:2", reading.recommended
  end

  def test_arenas_by_cpus_quota_and_ractors
    {
      { cpus: 2 } => "MALLOC_CONF=narenas:2",
      { cpus: 64, narenas: 256 } => "MALLOC_CONF=narenas:2",
      { cpus: 64, narenas: 256, cpu_limit: 0.5 } => "MALLOC_CONF=narenas:1",
      { cpus: 64, narenas: 256, cpu_limit: 1.5 } => "MALLOC_CONF=narenas:2",
      { cpus: 64, narenas: 256, ractors: 7 } => "MALLOC_CONF=narenas:8",
      { cpus: 4, narenas: 16, ractors: 7 } => "MALLOC_CONF=narenas:4",
      { cpus: 1, narenas: 1 } => nil,
      { cpus: 1, narenas: 4 } => "MALLOC_CONF=narenas:1"
    }.each do |situation, expected|
      reading = jemalloc(options: situation.slice(:narenas), **situation.except(:narenas))

      expected ? assert_equal(expected, reading.recommended, situation) : assert_nil(reading.recommended)

      assert_empty reading.problems
    end
    assert_match(/defaults suit/, jemalloc(options: { narenas: 1 }, cpus: 1).reasons[:recommended])
  end

  def test_each_part_has_its_reason
    reading = jemalloc(cpus: 64, cpu_limit: 1.5, options: { narenas: 256 }, memory_limit_bytes: 512 << 20, threads: 30)
    arenas, decay = reading.recommendations

    assert_equal ["narenas:2", 256], [arenas.text, arenas.now]
    assert_match(/2 suffice for 30 threads on 1\.5 of 64 CPUs by the cgroup's quota/, arenas.reason)
    assert_equal ["dirty_decay_ms:1000", 10_000], [decay.text, decay.now]
    assert_match(/for 10 s, in a container of 512\.0 MiB/, decay.reason)
    assert_equal "MALLOC_CONF=narenas:2,dirty_decay_ms:1000", reading.recommended
  end

  def test_decay_times
    two = { options: { narenas: 2 } }

    assert_nil jemalloc(**two).recommended
    assert_equal "MALLOC_CONF=dirty_decay_ms:1000", jemalloc(**two, forks: true).recommended
    assert_equal "MALLOC_CONF=dirty_decay_ms:1000", jemalloc(**two, forked: true).recommended
    assert_equal "MALLOC_CONF=muzzy_decay_ms:0",
                 jemalloc(options: { narenas: 2, muzzy_decay_ms: 10_000 }).recommended
    assert_nil jemalloc(**two, memory_limit_bytes: 1 << 30,
                               current: { dirty_decay_ms: 500, muzzy_decay_ms: 0 }).recommended
  end

  def test_what_is_given_and_does_well_is_kept
    reading = taking(taken(narenas: 3, dirty_decay_ms: 5000, tcache_max: 4096, abort_conf: true),
                     memory_limit_bytes: 256 << 20)

    assert_equal "MALLOC_CONF=narenas:3,dirty_decay_ms:5000,tcache_max:4096,abort_conf:true", reading.recommended
    assert_equal ["as given"], reading.recommendations.map(&:reason).uniq
    assert_empty reading.problems
  end

  def test_arenas_of_each_cpu_are_left_alone
    assert_nil jemalloc(options: { percpu_arena: "percpu", narenas: 64 }).recommended
  end

  def test_the_link_in_etc_stays
    reading = jemalloc(options: { narenas: 3 }, link: "narenas:3", given: { narenas: ["/etc/malloc.conf", "3"] })

    assert_equal "MALLOC_CONF=narenas:2", reading.recommended, "the environment wins over the link"
  end

  def test_another_builds_variable
    assert_equal "JE_MALLOC_CONF=narenas:2", jemalloc(variable: "JE_MALLOC_CONF").recommended
  end
end

class LintJemallocProblemTest < LintTest
  def unknown(name, value)
    { name.to_sym => ["MALLOC_CONF", value, "this jemalloc has no option of this name"] }
  end

  # jemalloc prints which of its pairs are invalid, too.
  def test_what_jemalloc_does_not_take_is_left_out
    none = "this jemalloc has no option of this name"
    given = { dirty_decay: ["MALLOC_CONF", "5", none], narenas: ["default", "0", NOT_TAKEN],
              "muzzy=5": ["MALLOC_CONF", "muzzy=5", "malformed: jemalloc stops reading here"],
              tcache_max: %w[MALLOC_CONF 4096] }
    reading = jemalloc("dirty_decay:5,tcache_max:4096,narenas:0,muzzy=5", options: { narenas: 2, tcache_max: 4096 },
                                                                          given: given)

    assert_equal ["MALLOC_CONF: narenas, given \"0\": #{NOT_TAKEN}",
                  "MALLOC_CONF: \"muzzy=5\": malformed: jemalloc stops reading here",
                  "MALLOC_CONF: dirty_decay, given \"5\": #{none}"].sort, reading.problems.map(&:text).sort
    assert_equal [%i[invalid_value warning]] * 3, problems(reading)
    assert_equal ["MALLOC_CONF=tcache_max:4096"], [reading.recommended, *reading.problems.map(&:replacement)].uniq
    reading = jemalloc("decay_time:10", options: { narenas: 2 }, given: { decay_time: ["MALLOC_CONF", "10", none] })

    assert_equal [nil, "unset MALLOC_CONF"], [reading.recommended, reading.problems.first.replacement]
  end

  def test_the_link_in_etc
    reading = jemalloc(link: "narenas:3,dirty_decay:5", options: { narenas: 2 },
                       given: { dirty_decay: ["/etc/malloc.conf", "5", NOT_TAKEN] })
    problem = assert_problem(reading, :invalid_value, %r{\A/etc/malloc\.conf: dirty_decay, given "5"})

    assert_nil problem.replacement
  end

  def test_a_profiler_that_can_crash
    reading = taking(taken(prof: true, narenas: 2))
    problem = assert_problem(reading, :crashing_profiler, /\Aprof:true: jemalloc 5\.3\.0 can crash/)

    assert_equal "MALLOC_CONF=prof:false,narenas:2", problem.replacement
    assert_empty taking(taken(prof: false, narenas: 2)).problems
    newer = LintInputs.build(:jemalloc, "5.3.1-0", LintInputs.settings({ prof: true }, {}), [],
                             variables: {}, environment: LintInputs::ENVIRONMENT)

    assert_empty lint(newer).problems
  end

  def test_pages_that_are_never_given_back
    reading = taking(taken(narenas: 2, dirty_decay_ms: -1))

    assert_problem reading, :never_returned, /dirty_decay_ms: .*for ever/
    assert_equal "MALLOC_CONF=narenas:2,dirty_decay_ms:10000", reading.recommended
    reading = taking(taken(muzzy_decay_ms: 600_000, narenas: 2), memory_limit_bytes: 1 << 30)

    assert_problem reading, :never_returned, /for 600 s/
    assert_equal "MALLOC_CONF=muzzy_decay_ms:0,narenas:2,dirty_decay_ms:1000", reading.recommended
  end

  def test_a_setting_of_now_counts
    reading = jemalloc(options: { narenas: 2 }, current: { dirty_decay_ms: -1, muzzy_decay_ms: 0 })

    setting = reading.find { |each| each.name == "dirty_decay_ms" }

    assert_equal [-1, "mallctl"], [setting.value, setting.source]
    assert_problem reading, :never_returned, /for ever/
  end

  def test_arenas_against_threads_and_cpus
    [[256, 5, 64, 0.5, false], [256, 40, 64, 0.5, true], [256, 40, 64, nil, false], [256, 300, 64, nil, false],
     [256, 300, 32, nil, true], [8, 100, 2, nil, false]].each do |narenas, threads, cpus, cpu_limit, excessive|
      reading = jemalloc(options: { narenas: narenas }, threads: threads, cpus: cpus, cpu_limit: cpu_limit)

      assert_equal excessive ? [%i[too_many_arenas info]] : [], problems(reading),
                   [narenas, threads, cpus, cpu_limit]
    end
    reading = taking(taken(narenas: 100), threads: 50)

    assert_problem reading, :too_many_arenas, /100 arenas for 50 threads on 2 CPUs/, severity: :info
    assert_equal "MALLOC_CONF=narenas:2", reading.recommended
  end

  def test_background_threads_and_forks
    given = taken(narenas: 2, background_thread: true)
    alone = taking(given)

    assert_empty alone.problems
    assert_equal "MALLOC_CONF=narenas:2,background_thread:true", alone.recommended
    [{ forks: true }, { forked: true, current: { background_thread: false } }].each do |situation|
      reading = taking(given, **situation)
      problem = assert_problem(reading, :background_thread, /do not survive a fork/)

      assert_equal "Memscope.tune(background_thread: true)", problem.replacement
      assert_equal %w[background_thread:false dirty_decay_ms:1000 narenas:2],
                   reading.recommended.delete_prefix("MALLOC_CONF=").split(",").sort
    end
    setting = taking(given, forked: true, current: { background_thread: false }).find do |s|
      s.name == "background_thread"
    end

    assert_equal [false, "fork", "true"], [setting.value, setting.source, setting.given]
  end

  # The doctor's remedy for freed pages that stay is this line.
  def test_what_can_be_set_at_run_time
    on = { background_thread: true, dirty_decay_ms: 10_000, muzzy_decay_ms: 0 }

    assert_equal "Memscope.tune(background_thread: true)", jemalloc.tuning
    assert_equal "Memscope.tune(dirty_decay_ms: 1000, background_thread: true)",
                 jemalloc(forked: true).tuning
    assert_equal "Memscope.tune(dirty_decay_ms: 10000)", jemalloc(current: { **on, dirty_decay_ms: -1 }).tuning
    assert_nil jemalloc(current: on).tuning
    assert_nil glibc.tuning
    text = jemalloc(options: { narenas: 2 }).to_s

    assert_match(/^    Memscope\.tune\(background_thread: true\)$/, text)
    assert_match(/No problems found.*apart from what Memscope\.tune sets/m, text.split.join(" "))
  end

  def test_background_threads_of_the_link
    reading = jemalloc(link: "background_thread:true", options: { narenas: 2, background_thread: true }, forks: true,
                       given: { background_thread: ["/etc/malloc.conf", "true"] })

    assert_problem reading, :background_thread, /do not survive a fork/
    assert_equal "MALLOC_CONF=dirty_decay_ms:1000,background_thread:false", reading.recommended
  end

  def test_huge_pages
    reading = jemalloc(options: { narenas: 2 }, thp_mode: "always", thp_enabled: true)

    assert_problem reading, :huge_pages, /huge pages/
    assert_equal "MALLOC_CONF=thp:never", reading.recommended
    [["always", false, "default"], ["madvise", true, "default"], ["never", true, "default"],
     ["always", true, "never"], [nil, nil, "default"]].each do |mode, enabled, thp|
      assert_empty jemalloc(options: { thp: thp, narenas: 2 }, thp_mode: mode, thp_enabled: enabled).problems
    end
  end

  def test_debugging
    reading = taking(taken(junk: "true", zero: true))

    assert_equal [%i[debugging warning]] * 2, problems(reading)
    assert_equal "MALLOC_CONF=junk:false,zero:false,narenas:2", reading.recommended
  end
end

class LintGlibcTest < LintTest
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

class LintVariablesTest < LintTest
  IDLE = { name: :jemalloc, version: "5.3.0", path: "/lib/libjemalloc.so.2", prefix: "", reason: "idle" }.freeze
  PRIVATE = { **IDLE, path: "/gems/rust.so", prefix: "_rjem_" }.freeze

  def test_jemallocs_under_glibc
    reading = glibc({ MALLOC_CONF: "narenas:2" }, threads: 1)
    problem = assert_problem(reading, :other_allocator, /jemalloc reads it, but glibc serves malloc;/)

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
                             /\ALD_PRELOAD names jemalloc, but glibc serves malloc: /)

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
                   /did you mean MALLOC_CONF\?/
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

class LintValueTest < LintTest
  # Whoever starts a process can name a variable by any bytes.
  def test_a_variable_whose_name_is_not_utf8
    names = child_json(<<~RUBY, requires: %w[json memscope/judge/lint], env: { "MY_MALLOC_\xFF" => "\xFF" })
      puts JSON.generate([Memscope::Lint::Inputs.read.variables.keys, Memscope.lint.kind])
    RUBY

    assert_equal [["MY_MALLOC_\uFFFD"], "lint"], names
  end

  def test_it_is_frozen_enumerable_and_survives_json
    reading = jemalloc("dirty_decay:5", given: { dirty_decay: ["MALLOC_CONF", "5", NOT_TAKEN] }, memory_limit_bytes: 1)

    assert Ractor.shareable?(reading) if defined?(Ractor) && reading.frozen?

    assert_predicate reading, :frozen?
    assert_equal reading.settings, reading.to_a
    assert_equal reading.settings.size, reading.each.size
    assert_equal reading, Memscope::Lint.from_h(JSON.parse(reading.to_json))
    assert_equal "lint", JSON.parse(reading.to_json).fetch("kind")
  end

  def test_warnings_come_first
    reading = jemalloc(variables: { MALLOC_ARENA_MAX: "1", MALLOC_TRACE: "x" }, options: { junk: "true" })

    assert_equal %i[warning info info], reading.problems.map(&:severity)
  end

  def test_text
    given = { dirty_decay: ["MALLOC_CONF", "5", NOT_TAKEN], narenas: %w[MALLOC_CONF 2],
              tcache_max: %w[MALLOC_CONF 4096] }
    reading = jemalloc("dirty_decay:5,narenas:2,tcache_max:4096", given: given, memory_limit_bytes: 512 << 20,
                                                                  options: { narenas: 2, tcache_max: 4096 },
                                                                  variables: { MALLOC_ARENA_MAX: "2" })
    text = reading.to_s

    assert_match(/^ +tcache_max  4,096 \(MALLOC_CONF\)$/, text)
    assert_match(/^  warning: MALLOC_CONF: dirty_decay, given "5": jemalloc did not take it/, text)
    assert_match(/^    paste  unset MALLOC_ARENA_MAX$/, text)
    assert_match(/^    MALLOC_CONF=narenas:2,tcache_max:4096,dirty_decay_ms:1000$/, text)
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_predicate reading.to_s(unicode: false), :ascii_only?
    assert_match(/No problems found in the settings/, jemalloc.to_s)
  end
end
