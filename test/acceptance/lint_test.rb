# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/allocator_fixtures"
require "memscope/judge/lint"
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

  def lint(preload, env = {}, script: LINT, requires: ["memscope"])
    result = ChildProcess.run(script, requires: requires, preload: preload, env: bare.merge(env))
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
    "jemalloc" => ["dirty_decay_ms:500,narena:3,junk:true,narenas:0", "narenas=3; dirty_decay_ms=10s",
                   "tcache_max:4096,zero:on,lg_dirty_mult:8,thp:Always,percpu_arena:phycpu", "\u00e9:1,narenas:2"],
    "glibc" => ["glibc.malloc.arenamax=3:glibc.malloc.trim_threshold=128k", "malloc.arena_max=2",
                "glibc.malloc.arena_max=0:glibc.malloc.tcache_count=2:glibc.malloc.perturb=300"]
  }.freeze

  # abort_conf ends a process at the first pair that jemalloc rejects.
  def test_what_is_wrong_is_left_out_for_jemalloc
    WRONG["jemalloc"].each do |text|
      reading, = lint(ChildProcess::ALLOCATORS[:jemalloc], { "MALLOC_CONF" => text })

      refute_empty reading.problems, text
      next unless reading.recommended

      pairs = assigned(reading.recommended).fetch("MALLOC_CONF")
      strict, = lint(ChildProcess::ALLOCATORS[:jemalloc], { "MALLOC_CONF" => "abort_conf:true,#{pairs}" })

      assert_empty strict.problems.map(&:text), "#{text} became #{pairs}"
    end
  end

  def test_what_is_wrong_is_left_out_for_glibc
    WRONG["glibc"].each do |text|
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
    assert_match(/\AMALLOC_CONF=(narenas:2,)?dirty_decay_ms:1000,background_thread:false\z/, reading.recommended)
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

    assert_equal %i[misspelt_variable misspelt_variable other_allocator], reading.problems.map(&:id)
    assert_match(/\AMALLOC_CONF=narenas:/, reading.recommended)
  end

  def test_the_environment_is_that_of_the_start
    script = "ENV.delete('MALLOC_TRIM_THRESHOLD'); $0 = 'x' * 4000; #{LINT}"
    reading, = lint(nil, { "MALLOC_TRIM_THRESHOLD" => "65536" }, script: script, requires: %w[did_you_mean memscope])

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
