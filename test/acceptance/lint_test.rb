# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/allocator_fixtures"
require "memscope/lint"
require "shellwords"

# Each recommendation is tried in a process like the one that it was made for: the allocator takes all of it, and the
# linter finds no further problem.
class LintAcceptanceTest < MemscopeTest
  # Each test waits for several child processes: two run at once on two processors.
  parallelize_me!

  # With as many threads as a small server has.
  LINT = <<~RUBY
    require "json"
    4.times { Thread.new { sleep } }
    Thread.pass
    puts Memscope.lint.to_json
  RUBY

  def setup
    skip_under_sanitizer
  end

  def lint(preload, env = {}, script: LINT)
    result = ChildProcess.run(script, requires: ["memscope"], preload: preload, env: bare.merge(env))
    result.json
    [Memscope::Lint.from_h(JSON.parse(result.out.lines.last)), result.err]
  end

  # Unsets the allocator settings of the environment in which the tests run.
  def bare = ENV.keys.grep(/MALLOC|TUNABLE/).to_h { |name| [name, nil] }

  # The environment that the assignments describe; a value may be quoted.
  def assigned(recommended) = Shellwords.split(recommended).to_h { |assignment| assignment.split("=", 2) }

  # The process accepts every pair, and the linter finds no further problem.
  def assert_taken(recommended, preload)
    reading, err = lint(preload, assigned(recommended))

    refute_match(/<jemalloc>/, err, recommended)
    assert_empty reading.problems.map(&:text), recommended
    assert_equal recommended, reading.recommended
    reading.recommendations.reject { |part| part.now.nil? }.each do |part|
      assert_equal part.text.split(/[=:]/, 2).last, part.now.to_s, recommended
    end
  end

  both_allocators("the recommendation is taken") do |preload|
    reading, = lint(preload)

    assert_empty reading.problems.map(&:text)
    assert_match(/\A(MALLOC_CONF=narenas|MALLOC_ARENA_MAX=)/, reading.recommended) if Etc.nprocessors > 1
    assert_taken reading.recommended, preload if reading.recommended
  end

  WRONG = {
    "jemalloc" => ["dirty_decay:500,narena:3", "narenas=3; dirty_decay_ms=10s", "'narenas:2','background_thread:yes'",
                   "dirty_decay_ms: 5, muzzy_decay_ms: 0", "narenas:0,dirty_decay_ms:-7", "narenas:2,", "narenas",
                   "lg_dirty_mult:8,decay_time:10", "tcache_max:4096,junk:true,zero:on", "thp:Always,metadata_thp:auto",
                   "narenas:2:3,,,", "max_background_threads:9,background_threads:1", "narenas:99999", ",",
                   "dirty_decay_ms:-1,muzzy_decay_ms:-1", "abort_conf:false,xmalloc:TRUE,prof:nope",
                   "bin_shards:1-128:2,percpu_arena:phycpu", "narenas:default", "zero:default",
                   "lg_tcache_max:false,bin_shards:-2", "\u00e9:1,narenas:2"],
    "glibc" => ["glibc.malloc.arenamax=3", "glibc.malloc.arena_max=2,glibc.malloc.top_pad=64k", "malloc.arena_max=2",
                "glibc.malloc.arena_max:2", "glibc.malloc.arena_max=0:glibc.malloc.trim_threshold=128k",
                "glibc.malloc.mmap_max=99999999999:glibc.rtld.optional_static_tls=16384", "arena_max", "=:=",
                "glibc.rtld.nns==2",
                "glibc.malloc.arena_max=2=3", "glibc.malloc.tcache_count=2:glibc.malloc.perturb=300",
                "glibc.malloc.trim_threshold=9999999999:glibc.malloc.mxfast=64"]
  }.freeze

  # abort_conf ends a process at the first pair that jemalloc rejects.
  WRONG["jemalloc"].each_with_index do |text, index|
    define_method("test_what_is_wrong_is_left_out_for_jemalloc_#{index}") do
      reading, = lint(ChildProcess::ALLOCATORS[:jemalloc], { "MALLOC_CONF" => text })
      next unless reading.recommended

      assert_taken reading.recommended, ChildProcess::ALLOCATORS[:jemalloc]
      pairs = assigned(reading.recommended).fetch("MALLOC_CONF")
      strict = ChildProcess.run("", preload: ChildProcess::ALLOCATORS[:jemalloc],
                                    env: bare.merge("MALLOC_CONF" => "abort_conf:true,#{pairs}"))

      assert_predicate strict, :success?, "#{text} became #{pairs}: #{strict}"
    end
  end

  WRONG["glibc"].each_with_index do |text, index|
    define_method("test_what_is_wrong_is_left_out_for_glibc_#{index}") do
      reading, = lint(nil, { "GLIBC_TUNABLES" => text })

      refute_empty reading.problems, text
      assert_taken reading.recommended, nil if reading.recommended
    end
  end

  # Uses glibc's own list of the values that took effect.
  def test_glibc_lists_what_was_recommended
    linker = Dir["/lib*/ld-linux*.so.*"].first
    reading, = lint(nil, { "GLIBC_TUNABLES" => "glibc.malloc.arena_max=3:glibc.malloc.top_pad=65536" })
    listed = ChildProcess.run_command(linker, "--list-tunables", env: bare.merge(assigned(reading.recommended))).out

    assert_equal "MALLOC_ARENA_MAX=3 MALLOC_TOP_PAD_=65536", reading.recommended
    assert_match(/^glibc\.malloc\.arena_max: 0x3 /, listed)
    assert_match(/^glibc\.malloc\.top_pad: 0x10000 /, listed)
  end

  # The ranges that the linter states: jemalloc accepts their bounds, and nothing beyond.
  def test_jemallocs_ranges
    { "narenas:1" => true, "narenas:4094" => true, "narenas:4095" => false, "dirty_decay_ms:18446744072000" => true,
      "dirty_decay_ms:18446744072001" => false, "muzzy_decay_ms:-1" => true, "muzzy_decay_ms:-2" => false,
      "max_background_threads:1" => true }.each do |pair, taken|
      env = bare.merge("MALLOC_CONF" => pair)
      err = ChildProcess.run("", preload: ChildProcess::ALLOCATORS[:jemalloc], env: env).err

      assert_equal taken, !err.include?("<jemalloc>"), "#{pair}: #{err}"
    end
  end

  def test_a_forked_worker_has_lost_its_background_threads
    script = <<~RUBY
      require "json"
      reader, writer = IO.pipe
      fork { writer.write(Memscope.lint.to_json) }
      writer.close
      Process.wait
      puts reader.read
    RUBY
    reading, = lint(ChildProcess::ALLOCATORS[:jemalloc], { "MALLOC_CONF" => "background_thread:true" }, script: script)
    setting = reading.find { |each| each.name == "background_thread" }

    assert_equal [false, "fork", "true"], [setting.value, setting.source, setting.given]
    assert_equal [:background_thread], reading.problems.map(&:id)
    assert_match(/\AMALLOC_CONF=(narenas:2,)?dirty_decay_ms:1000\z/, reading.recommended)
  end

  def test_what_a_program_changes_while_it_runs
    skip_without "fiddle"
    script = <<~RUBY
      require "fiddle"
      mallctl = Fiddle::Function.new(Fiddle::Handle::DEFAULT["mallctl"],
                                     [Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP,
                                      Fiddle::TYPE_SIZE_T], Fiddle::TYPE_INT)
      raise "mallctl" unless mallctl.call("arena.0.dirty_decay_ms", nil, nil, [-1].pack("q"), 8).zero?
      #{LINT}
    RUBY
    reading, = lint(ChildProcess::ALLOCATORS[:jemalloc], script: script)
    setting = reading.find { |each| each.name == "dirty_decay_ms" }

    assert_equal [-1, "mallctl"], [setting.value, setting.source]
    assert_includes reading.problems.map(&:id), :never_returned
  end

  def test_the_wrong_allocators_variables
    reading, = lint(nil, { "MALLOC_CONF" => "narenas:2" })

    assert_equal [:other_allocator], reading.problems.map(&:id)
    reading, = lint(ChildProcess::ALLOCATORS[:jemalloc],
                    { "MALLOC_ARENA_MAX" => "2", "JE_MALLOC_CONF" => "narenas:3", "_RJEM_MALLOC_CONF" => "narenas:4" })

    assert_equal %i[wrong_prefix wrong_prefix other_allocator], reading.problems.map(&:id)
    assert_match(/\AMALLOC_CONF=narenas:/, reading.recommended)
  end

  def test_the_environment_is_that_of_the_start
    reading, = lint(nil, { "MALLOC_TRIM_THRESHOLD" => "65536" },
                    script: "ENV.delete('MALLOC_TRIM_THRESHOLD'); $0 = 'x' * 4000; #{LINT}")

    problem, = reading.problems

    assert_equal [:misspelt_variable], reading.problems.map(&:id)
    assert_match(/did you mean MALLOC_TRIM_THRESHOLD_\?/, problem.text)
    assert_equal "unset MALLOC_TRIM_THRESHOLD", problem.replacement
  end

  # The kernel sets AT_SECURE for a program whose file has capabilities.
  def test_a_program_that_glibc_does_not_listen_to
    skip "only root can give a file capabilities" unless Process.uid.zero?
    skip "setcap is not installed" unless system("setcap", "-h", %i[out err] => File::NULL)
    ruby = Compiled.path("ruby")
    FileUtils.cp(File.realpath(RbConfig.ruby), ruby)
    Compiled.run("setcap", "cap_net_bind_service+ep", ruby)
    result = ChildProcess.run_command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", ruby,
                                      *ChildProcess::LOAD_PATH.map { |path| "-I#{path}" }, "-rmemscope", "-e", LINT,
                                      env: bare.merge("GLIBC_TUNABLES" => "glibc.malloc.arena_max=3"))
    skip "another user cannot run it here: #{result.err}" if result.err.match?(/cannot load|cannot open|denied/)
    reading = Memscope::Lint.from_h(result.json)
    setting = reading.find { |each| each.name == "arena_max" }

    assert_equal "default", setting.source
    assert_equal [:ignored_environment], reading.problems.map(&:id)
    assert_nil reading.recommended
  end

  def test_who_calls_mallopt
    skip_without "fiddle"
    library = AllocatorFixtures.shared("mallopt_caller")
    reading, = lint(nil, script: "require 'fiddle'; Fiddle.dlopen(#{library.dump}); #{LINT}")

    assert_match(/mallopt_caller\S* may have changed settings with mallopt/, reading.reasons[:mallopt])
    assert_nil lint(nil).first.reasons[:mallopt]
  end

  def test_under_other_allocators
    [AllocatorFixtures::MIMALLOC, AllocatorFixtures::TCMALLOC].each do |library|
      next unless AllocatorFixtures.available?(library)

      reading, = lint(library, { "MALLOC_CONF" => "narenas:2" })

      assert_equal [:other_allocator], reading.problems.map(&:id)
      assert_nil reading.recommended
    end
  end
end
