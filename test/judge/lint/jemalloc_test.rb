# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/linted"

# What lint recommends under jemalloc, and which of its options are problems.
class LintJemallocTest < MemscopeTest
  include Linted

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

    assert_problem reading, :never_returned, /dirty_decay_ms: .*forever/
    assert_equal "MALLOC_CONF=narenas:2,dirty_decay_ms:10000", reading.recommended
    reading = taking(taken(muzzy_decay_ms: 600_000, narenas: 2), memory_limit_bytes: 1 << 30)

    assert_problem reading, :never_returned, /for 600 s/
    assert_equal "MALLOC_CONF=muzzy_decay_ms:0,narenas:2,dirty_decay_ms:1000", reading.recommended
  end

  def test_a_setting_of_now_counts
    reading = jemalloc(options: { narenas: 2 }, current: { dirty_decay_ms: -1, muzzy_decay_ms: 0 })

    setting = reading.find { |each| each.name == "dirty_decay_ms" }

    assert_equal [-1, "mallctl"], [setting.value, setting.source]
    assert_problem reading, :never_returned, /forever/
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
    assert_match(/No problems found.*apart from the settings of Memscope\.tune/m, text.split.join(" "))
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
