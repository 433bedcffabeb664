# frozen_string_literal: true

# Inputs for the linter, made by hand: an ordinary process, and the differences that a test states.
module LintInputs
  COST = { tier: :T0, wall_us: 0, gvl_us: 0, scratch_bytes: 0 }.freeze

  # Two CPUs, a few threads, no container, nothing forked, and huge pages off as in any CRuby.
  ENVIRONMENT = { cpus: 2, cpu_limit: nil, memory_limit_bytes: nil, threads: 5, ractors: 1, forked: false,
                  forks: false, parent_pid: 1, started: 1_000, variables: {}, thp_mode: "madvise",
                  thp_gaps: 511, thp_enabled: false }.freeze

  JEMALLOC = { abort_conf: false, narenas: 8, percpu_arena: "disabled", background_thread: false,
               max_background_threads: 4, dirty_decay_ms: 10_000, muzzy_decay_ms: 0, thp: "default",
               metadata_thp: "disabled", junk: "false", zero: false, tcache: true, tcache_max: 32_768 }.freeze
  GLIBC = { arena_max: nil, arena_test: 8, mmap_threshold: nil, trim_threshold: nil, mmap_max: 65_536,
            top_pad: 131_072, perturb: 0, check: 0, tcache_count: nil, hugetlb: nil }.freeze

  module_function

  # options: jemalloc's current values by name; given: [source, text, ignored] of each option that a text sets. The
  # other keywords are those of Inputs and HostEnvironment.
  def jemalloc(text = nil, options: {}, given: {}, others: [], link: nil, current: nil, variables: {}, secure: false,
               variable: "MALLOC_CONF", **environment)
    values = { **JEMALLOC, **options }
    confs = [{ source: "--with-malloc-conf", text: "" }, { source: "malloc_conf", text: nil },
             { source: "/etc/malloc.conf", text: link }, { source: variable, text: secure ? nil : text }]
    variables = { **(text ? { variable.to_sym => text } : {}), **variables }
    inputs = { variables: variables, secure: secure, confs: confs, conf_variable: variable,
               current: current || values.slice(:background_thread, :dirty_decay_ms, :muzzy_decay_ms),
               environment: { **ENVIRONMENT, **environment } }
    build(:jemalloc, "5.3.0-0-g54eaed1", settings(values, given), others, **inputs)
  end

  def glibc(variables = {}, options: {}, given: {}, others: [], secure: false, mallopt_callers: [], **environment)
    inputs = { variables: variables, secure: secure, mallopt_callers: mallopt_callers,
               environment: { **ENVIRONMENT, **environment } }
    build(:glibc, "2.36", settings({ **GLIBC, **options }, given), others, **inputs)
  end

  def other(name, variables = {}, given: {})
    build(name, nil, settings({}, given), [], variables: variables, environment: ENVIRONMENT)
  end

  def build(name, version, settings, others, **inputs)
    allocator = { name: name, version: version, path: nil, proved: name != :unknown, proof: "made up",
                  settings: settings, others: others, reasons: {}, cost: COST.dup }
    environment = inputs.delete(:environment)
    environment = { **environment, variables: environment.fetch(:environment_variables, {}) }
    Memscope::Lint::Inputs.new(allocator: Memscope::Allocator.capture(allocator), secure: false, confs: [], current: {},
                               mallopt_callers: [], environment: Memscope::HostEnvironment.capture(environment),
                               **inputs)
  end

  def settings(values, given)
    values = { **given.to_h { |name, _| [name, nil] }, **values }
    values.map do |name, value|
      source, text, ignored = given[name]
      { name: name.name, value: value, source: source || "default", given: text, ignored: ignored }
    end
  end
end
