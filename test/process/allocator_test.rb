# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/bodies"
require_relative "../support/allocator_fixtures"

class AllocatorTest < MemscopeTest
  READ = "require 'json'; puts Memscope.allocator.to_json"

  def setup
    skip_under_sanitizer
  end

  def allocator(preload: nil, env: {}, script: READ)
    Memscope::Allocator.from_h(child_json(script, preload: preload, env: env))
  end

  def require_libraries(*names)
    missing = names.reject { |name| AllocatorFixtures.available?(name) }
    skip "not installed: #{missing.join(', ')}" unless missing.empty?
  end

  def assert_setting(reading, name, value, source, given: nil, ignored: nil)
    setting = reading.settings.fetch(name)
    value.nil? ? assert_nil(setting.value) : assert_equal(value, setting.value)

    assert_equal source, setting.source
    given.nil? ? assert_nil(setting.given) : assert_equal(given, setting.given)
    ignored.nil? ? assert_nil(setting.ignored) : assert_match(ignored, setting.ignored)
  end
end

class AllocatorIdentityTest < AllocatorTest
  FORKED = <<~RUBY
    require "json"
    reader, writer = IO.pipe
    fork { writer.write(Memscope.allocator.to_json) }
    writer.close
    Process.wait
    puts reader.read
  RUBY

  def test_short_version
    versions = { "5.3.0-0-g54eaed1d8b56" => "5.3.0", "2.36" => "2.36", "devel" => "devel", nil => nil }

    versions.each do |version, short|
      assert_equal [short], [Memscope::Allocator.capture(Bodies.allocator(version: version)).short_version]
    end
  end

  def test_glibc
    reading = allocator

    assert_equal :glibc, reading.name
    assert_predicate reading, :proved?
    assert_match(/libc\.so\.6\z/, reading.path)
    assert_match(/chunk header/, reading.proof)
    assert_equal Compiled.run("getconf", "GNU_LIBC_VERSION")[/[\d.]+/], reading.version
    assert_empty reading.others
  end

  def test_jemalloc
    require_libraries AllocatorFixtures::JEMALLOC
    reading = allocator(preload: AllocatorFixtures::JEMALLOC)

    assert_equal :jemalloc, reading.name
    assert_predicate reading, :proved?
    assert_match(/libjemalloc\.so\.2\z/, reading.path)
    assert_match(/malloc and mallctl are both in .*; thread\.allocated rose by \d+ across malloc\(12345\)/,
                 reading.proof)
    assert_match(/\A\d+\.\d+\.\d+-\d+-g\h+\z/, reading.version)
    assert_empty reading.others
  end

  def test_mimalloc
    require_libraries AllocatorFixtures::MIMALLOC
    reading = allocator(preload: AllocatorFixtures::MIMALLOC)

    assert_equal :mimalloc, reading.name
    assert_predicate reading, :proved?
    assert_match(/libmimalloc/, reading.path)
    assert_match(/mi_is_in_heap_region/, reading.proof)
    assert_match(/\A\d\.\d+\.\d+\z/, reading.version)
  end

  def test_tcmalloc
    require_libraries AllocatorFixtures::TCMALLOC
    reading = allocator(preload: AllocatorFixtures::TCMALLOC)

    assert_equal :tcmalloc, reading.name
    assert_predicate reading, :proved?
    assert_match(/libtcmalloc_minimal/, reading.path)
    assert_match(/current_allocated_bytes rose by \d+/, reading.proof)
    assert_match(/\A\d+\.\d+/, reading.version)
  end

  def test_an_interposer_in_front_of_jemalloc
    require_libraries AllocatorFixtures::JEMALLOC
    forwarding = AllocatorFixtures.shared("forwarding_malloc")
    reading = allocator(preload: "#{forwarding}:#{AllocatorFixtures::JEMALLOC}")

    assert_equal :jemalloc, reading.name
    assert_predicate reading, :proved?
    assert_match(/libjemalloc\.so\.2\z/, reading.path)
    assert_match(/malloc is in #{forwarding} and goes through to .*libjemalloc/, reading.proof)
    assert_empty reading.others
  end

  def test_an_interposer_in_front_of_glibc_is_not_glibc_proved
    forwarding = AllocatorFixtures.shared("forwarding_malloc")
    reading = allocator(preload: forwarding)

    assert_equal :unknown, reading.name
    refute_predicate reading, :proved?
    assert_equal forwarding, reading.path
  end

  def test_an_unknown_allocator
    bump = AllocatorFixtures.shared("bump_malloc")
    reading = allocator(preload: bump)

    assert_equal :unknown, reading.name
    refute_predicate reading, :proved?
    assert_equal bump, reading.path
    assert_nil reading.version
    assert_match(/#{bump}/, reading.reasons.fetch(:name))
    assert_empty reading.settings
    assert_match(/not known/, reading.reasons.fetch(:settings))
  end

  def test_a_forked_child_says_the_same
    require_libraries AllocatorFixtures::JEMALLOC
    reading = allocator(preload: AllocatorFixtures::JEMALLOC, script: FORKED)

    assert_equal :jemalloc, reading.name
    assert_predicate reading, :proved?
  end

  def test_a_trap_handler_can_ask
    script = <<~RUBY
      require "json"
      Signal.trap(:USR1) { puts Memscope.allocator.to_json }
      Process.kill(:USR1, Process.pid)
      sleep 0.2
    RUBY
    assert_equal :glibc, allocator(script: script).name
  end
end

class AllocatorOthersTest < AllocatorTest
  def test_jemalloc_loaded_but_idle_behind_another
    require_libraries AllocatorFixtures::JEMALLOC, AllocatorFixtures::MIMALLOC
    reading = allocator(preload: "#{AllocatorFixtures::MIMALLOC}:#{AllocatorFixtures::JEMALLOC}")

    assert_equal :mimalloc, reading.name
    assert_idle_jemalloc reading
  end

  def test_jemalloc_loaded_late_serves_nothing
    require_libraries AllocatorFixtures::JEMALLOC
    skip_without "fiddle"
    script = <<~RUBY
      require "fiddle"
      before = Memscope.allocator.others
      Fiddle.dlopen(#{AllocatorFixtures.archive(AllocatorFixtures::JEMALLOC).dump})
      raise "not before" unless before.empty?
      #{READ}
    RUBY
    reading = allocator(script: script, env: AllocatorFixtures::ROOM_FOR_STATIC_TLS)

    assert_equal :glibc, reading.name
    assert_predicate reading, :proved?
    assert_idle_jemalloc reading
  end

  def test_mimalloc_behind_tcmalloc
    require_libraries AllocatorFixtures::TCMALLOC, AllocatorFixtures::MIMALLOC
    reading = allocator(preload: "#{AllocatorFixtures::TCMALLOC}:#{AllocatorFixtures::MIMALLOC}")

    assert_equal :tcmalloc, reading.name
    assert_equal [:mimalloc], reading.others.map(&:name)
  end

  def test_a_private_jemalloc_in_a_library
    require_libraries "libjemalloc_pic.a"
    skip_without "fiddle"
    library = AllocatorFixtures.private_jemalloc
    script = <<~RUBY
      require "fiddle"
      allocate = Fiddle::Function.new(Fiddle.dlopen(#{library.dump})["allocate_privately"],
                                      [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
      raise "no memory" if allocate.call(1 << 20).null?
      #{READ}
    RUBY
    [nil, AllocatorFixtures::JEMALLOC].each do |preload|
      reading = allocator(script: script, preload: preload, env: AllocatorFixtures::ROOM_FOR_STATIC_TLS)

      assert_equal preload ? :jemalloc : :glibc, reading.name
      other = reading.others.fetch(0)

      assert_equal [:jemalloc, "_rjem_", library, 1], [other.name, other.prefix, other.path, reading.others.size]
      assert_match(/\A5\./, other.version)
      assert_match(/private copy/, other.reason)
      assert_includes (1 << 20)..(2 << 20), other.allocated_bytes
    end
  end

  # It has its usual names, but serves only one library.
  def test_a_jemalloc_that_serves_a_library
    require_libraries AllocatorFixtures::JEMALLOC
    skip_without "fiddle"
    script = <<~RUBY
      require "fiddle"
      require "json"
      library = Fiddle.dlopen(#{AllocatorFixtures.archive(AllocatorFixtures::JEMALLOC).dump})
      malloc, free = { "malloc" => Fiddle::TYPE_SIZE_T, "free" => Fiddle::TYPE_VOIDP }.map do |name, type|
        Fiddle::Function.new(library[name], [type], Fiddle::TYPE_VOIDP)
      end
      look = -> { [Memscope.allocator.to_h, Memscope.doctor.to_h[:findings].map { |found| found.values_at(:id, :title) }] }
      idle = look.call
      blocks = Array.new(1_000) { malloc.call(32_768) }
      used = look.call
      blocks.each { |block| free.call(block) }
      puts JSON.generate([idle, used, look.call])
    RUBY
    idle, used, freed = child_json(script, env: AllocatorFixtures::ROOM_FOR_STATIC_TLS)
    others = [idle, used, freed].map { |(allocator, _)| Memscope::Allocator.from_h(allocator).others.fetch(0) }

    assert_equal [0, 32_768_000, 0], others.map(&:allocated_bytes)
    assert_match(/serves nothing/, others[0].reason)
    assert_match(/a library allocates from it/, others[1].reason)
    assert_includes idle.last.map(&:first), "idle_allocator"
    refute_includes used.last.map(&:first), "idle_allocator"
  end

  def test_what_thread_caches_stash_is_not_in_use
    skip_without "fiddle"
    reading = allocator(script: <<~RUBY)
      require "fiddle"
      Fiddle.dlopen(#{AllocatorFixtures.shared('stashing_jemalloc').dump})
      #{READ}
    RUBY
    other = reading.others.fetch(0)

    assert_equal ["stashing_", 490], [other.prefix, other.allocated_bytes]
  end

  # Why the extension binds mallctl through weak symbols: an extension that links -ljemalloc cannot be loaded into a
  # Ruby that was not started with it, since jemalloc's thread-local storage must be there from the start.
  def test_an_extension_linked_with_jemalloc_does_not_load
    require_libraries "libjemalloc.so"
    extension = AllocatorFixtures.shared("linked_extension", "-Wl,--no-as-needed", "-ljemalloc")
    script = "begin; require #{extension.dump}; puts 'true'; rescue LoadError => e; puts e.message.dump; end"

    assert_match(/cannot allocate memory in static TLS block/, ChildProcess.run(script).json)
    assert ChildProcess.run(script, preload: AllocatorFixtures::JEMALLOC).json
    assert_equal :glibc, allocator(script: "begin; require #{extension.dump}; rescue LoadError; end; #{READ}").name
  end

  private

  def assert_idle_jemalloc(reading)
    other = reading.others.fetch(0)

    assert_equal [:jemalloc, "", 1], [other.name, other.prefix, reading.others.size]
    assert_match(/libjemalloc/, other.path)
    assert_match(/\A5\./, other.version)
    assert_match(/serves nothing/, other.reason)
  end
end

class AllocatorJemallocSettingsTest < AllocatorTest
  NOT_TAKEN = /did not take it/

  # malloc_stats_print lists these among the options: a fixed-point number and, from 5.3.1 on, the options' source
  # texts.
  NOT_OPTIONS = %w[hpa_dirty_mult symlink env_var global_var global_var_2_conf_harder].freeze

  def setup
    super
    require_libraries AllocatorFixtures::JEMALLOC
  end

  def jemalloc(conf = nil, preload: AllocatorFixtures::JEMALLOC)
    allocator(preload: preload, env: { "MALLOC_CONF" => conf })
  end

  def test_defaults
    reading = jemalloc

    assert_setting reading, :dirty_decay_ms, 10_000, "default"
    assert_setting reading, :background_thread, false, "default"
    assert_setting reading, :metadata_thp, "disabled", "default"
    assert_operator reading.settings.fetch(:narenas).value, :>=, 1
    assert(reading.settings.values.all? { |setting| setting.source == "default" && setting.ignored.nil? })
  end

  def test_every_option_is_what_jemalloc_prints
    skip_without "fiddle"
    script = <<~RUBY
      require "fiddle"
      require "json"
      text = +""
      write = Fiddle::Closure::BlockCaller.new(Fiddle::TYPE_VOID, [Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP]) do |_, part|
        text << part.to_s
      end
      print = Fiddle::Function.new(Fiddle::Handle::DEFAULT["malloc_stats_print"], [Fiddle::TYPE_VOIDP] * 3, Fiddle::TYPE_VOID)
      print.call(write, nil, "Jmdablxeh")
      options = Memscope.allocator.settings.transform_values(&:value)
      puts JSON.generate([JSON.parse(text).dig("jemalloc", "opt"), options])
    RUBY
    printed, read = child_json(script, preload: AllocatorFixtures::JEMALLOC)

    assert_operator printed.size, :>, 40
    differing = printed.except(*NOT_OPTIONS).reject { |name, value| read[name] == value }

    assert_empty differing
  end

  def test_the_environment
    reading = jemalloc("narenas:3,dss:primary,background_thread:true,muzzy_decay_ms:-1,oversize_threshold:0x100000," \
                       "narenas:5")

    assert_setting reading, :narenas, 5, "MALLOC_CONF", given: "5"
    assert_setting reading, :dss, "primary", "MALLOC_CONF", given: "primary"
    assert_setting reading, :background_thread, true, "MALLOC_CONF", given: "true"
    assert_setting reading, :muzzy_decay_ms, -1, "MALLOC_CONF", given: "-1"
    assert_setting reading, :oversize_threshold, 1 << 20, "MALLOC_CONF", given: "0x100000"
    assert_setting reading, :dirty_decay_ms, 10_000, "default"
  end

  def test_values_that_jemalloc_does_not_take
    reading = jemalloc("dirty_decay_ms:soon,background_thread:yes,narenas:default,nonsense:1,lg_tcache_max:14")

    assert_setting reading, :dirty_decay_ms, 10_000, "default", given: "soon", ignored: NOT_TAKEN
    assert_setting reading, :background_thread, false, "default", given: "yes", ignored: NOT_TAKEN
    assert_nil reading.settings.fetch(:narenas).ignored
    assert_setting reading, :nonsense, nil, "MALLOC_CONF", given: "1", ignored: /no option of this name/
    assert_setting reading, :tcache_max, 1 << 14, "MALLOC_CONF", given: "14"
  end

  def test_an_option_that_is_not_reported
    reading = jemalloc("bin_shards:1-128:2")

    assert_setting reading, :bin_shards, nil, "MALLOC_CONF", given: "1-128:2"
    assert_match(/does not report/, reading.reasons.fetch(:bin_shards))
  end

  def test_a_malformed_text_ends_there
    reading = jemalloc("narenas:3, dirty_decay_ms:5")

    assert_setting reading, :narenas, 3, "MALLOC_CONF", given: "3"
    assert_setting reading, :dirty_decay_ms, 10_000, "default"
    assert_setting reading, :" dirty_decay_ms:5", nil, "MALLOC_CONF", given: " dirty_decay_ms:5", ignored: /malformed/
  end

  def test_the_programs_variable_and_what_overrides_it
    program = "#{AllocatorFixtures.shared('malloc_conf')}:#{AllocatorFixtures::JEMALLOC}"
    reading = jemalloc("dirty_decay_ms:2000", preload: program)

    assert_setting reading, :narenas, 2, "malloc_conf", given: "2"
    assert_setting reading, :dirty_decay_ms, 2000, "MALLOC_CONF", given: "2000"
    reading = jemalloc("dirty_decay_ms:never", preload: program)

    assert_setting reading, :dirty_decay_ms, 1234, "malloc_conf", given: "never", ignored: NOT_TAKEN
  end

  # In a mount namespace of its own, since every process reads /etc/malloc.conf.
  def test_the_link_in_etc
    etc = Compiled.path("etc")
    FileUtils.cp_r("/etc/.", etc, preserve: true)
    File.symlink("narenas:2,muzzy_decay_ms:77", File.join(etc, "malloc.conf"))
    ruby = [*ChildProcess.ruby, "-rmemscope", "-e", READ]
    result = ChildProcess.run_command("unshare", "--mount", "sh", "-c",
                                      "mount --bind #{etc} /etc && LD_PRELOAD=#{AllocatorFixtures::JEMALLOC} " \
                                      "exec \"$@\"", "sh", *ruby, env: { "MALLOC_CONF" => "muzzy_decay_ms:88" })
    skip "no mount namespace here: #{result.err}" if !result.success? && result.err.match?(/unshare|mount/)
    reading = Memscope::Allocator.from_h(result.json)

    assert_setting reading, :narenas, 2, "/etc/malloc.conf", given: "2"
    assert_setting reading, :muzzy_decay_ms, 88, "MALLOC_CONF", given: "88"
  end

  def test_the_environment_is_that_of_the_start
    reading = allocator(preload: AllocatorFixtures::JEMALLOC, env: { "MALLOC_CONF" => "narenas:3" },
                        script: "ENV['MALLOC_CONF'] = 'narenas:9'; $0 = 'x' * 4000; #{READ}")

    assert_setting reading, :narenas, 3, "MALLOC_CONF", given: "3"
  end
end

class AllocatorOtherSettingsTest < AllocatorTest
  TUNABLES = %w[arena_max arena_test mmap_threshold trim_threshold mmap_max top_pad perturb].freeze
  LINKER = Dir["/lib*/ld-linux*.so.*"].first

  # The tunables as glibc itself reads them from the environment; those that nothing sets are 0 or their default.
  def tunables(env)
    output = ChildProcess.run_command(LINKER, "--list-tunables", env: env).out
    output.scan(/^glibc\.malloc\.(\w+): (\w+)/).to_h { |name, value| [name.to_sym, Integer(value)] }
  end

  def test_glibc_defaults
    reading = allocator

    assert_setting reading, :arena_test, 8, "default"
    assert_setting reading, :mmap_max, 65_536, "default"
    assert_setting reading, :arena_max, nil, "default"
    assert_match(/8 arenas for each CPU/, reading.reasons.fetch(:arena_max))
    assert_setting reading, :mmap_threshold, nil, "default"
    assert_match(/mallopt/, reading.reasons.fetch(:settings))
  end

  def test_glibc_agrees
    [
      { "MALLOC_ARENA_MAX" => "2", "MALLOC_TRIM_THRESHOLD_" => "0x20000", "MALLOC_PERTURB_" => "165" },
      { "MALLOC_ARENA_MAX" => "2", "GLIBC_TUNABLES" => "glibc.malloc.arena_max=3:glibc.malloc.top_pad=4096" },
      { "GLIBC_TUNABLES" => "glibc.malloc.mmap_threshold=010:glibc.malloc.mmap_max=7:glibc.malloc.mmap_max=8" },
      { "MALLOC_ARENA_MAX" => "0", "MALLOC_PERTURB_" => "300", "MALLOC_ARENA_TEST" => "many" },
      { "MALLOC_ARENA_MAX" => "5", "GLIBC_TUNABLES" => "glibc.malloc.arena_max=0" }
    ].each do |env|
      settings = allocator(env: env).settings
      tunables(env).slice(*TUNABLES.map(&:to_sym)).each do |name, value|
        setting = settings.fetch(name)

        allowed = setting.source == "default" ? [0, setting.value] : [setting.value]

        assert_includes allowed, value, "#{name} with #{env}"
      end
    end
  end

  def test_glibc_sources
    reading = allocator(env: { "MALLOC_ARENA_MAX" => "2", "MALLOC_TRIM_THRESHOLD_" => "65536",
                               "GLIBC_TUNABLES" => "glibc.malloc.arena_max=3:glibc.malloc.speed=9" })

    assert_setting reading, :arena_max, 3, "GLIBC_TUNABLES", given: "3"
    assert_setting reading, :trim_threshold, 65_536, "MALLOC_TRIM_THRESHOLD_", given: "65536"
    assert_setting reading, :mmap_threshold, 131_072, "default"
    assert_setting reading, :speed, nil, "GLIBC_TUNABLES", given: "9", ignored: /no tunable of this name/
  end

  def test_glibc_values_that_are_not_taken
    reading = allocator(env: { "MALLOC_ARENA_MAX" => "none", "MALLOC_PERTURB_" => "300", "MALLOC_ARENA_TEST" => "4",
                               "GLIBC_TUNABLES" => "glibc.malloc.arena_test=0" })

    assert_setting reading, :arena_max, nil, "default", given: "none", ignored: /not a number/
    assert_setting reading, :perturb, 0, "default", given: "300", ignored: /out of range/
    assert_setting reading, :arena_test, 4, "MALLOC_ARENA_TEST", given: "0", ignored: /out of range/
  end

  # Of these, glibc's own list of tunables (ld.so --list-tunables) says that any value is allowed.
  def test_glibc_values_beyond_the_limits_of_malloc
    reading = allocator(env: { "MALLOC_MMAP_THRESHOLD_" => (64 << 20).to_s,
                               "GLIBC_TUNABLES" => %w[tcache_count=65536 tcache_max=4194281 mxfast=161]
                                                   .map { |given| "glibc.malloc.#{given}" }.join(":") })

    assert_setting reading, :tcache_count, nil, "default", given: "65536", ignored: /out of range/
    assert_setting reading, :tcache_max, nil, "default", given: "4194281", ignored: /out of range/
    assert_setting reading, :mxfast, nil, "default", given: "161", ignored: /out of range/
    if Gem::Version.new(reading.version) >= Gem::Version.new("2.35")
      assert_setting reading, :mmap_threshold, 64 << 20, "MALLOC_MMAP_THRESHOLD_", given: (64 << 20).to_s
    else
      assert_setting reading, :mmap_threshold, nil, "default", given: (64 << 20).to_s, ignored: /out of range/
    end
  end

  def test_glibc_takes_larger_blocks_into_thread_caches_in_newer_versions
    reading = allocator(env: { "GLIBC_TUNABLES" => "glibc.malloc.tcache_max=1033" })

    if Gem::Version.new(reading.version) >= Gem::Version.new("2.42")
      assert_setting reading, :tcache_max, 1033, "GLIBC_TUNABLES", given: "1033"
    else
      assert_setting reading, :tcache_max, nil, "default", given: "1033", ignored: /out of range/
    end
  end

  def test_mimalloc
    require_libraries AllocatorFixtures::MIMALLOC
    reading = allocator(preload: AllocatorFixtures::MIMALLOC,
                        env: { "MIMALLOC_PAGE_RESET" => "on", "MIMALLOC_RESET_DELAY" => "250",
                               "MIMALLOC_USE_NUMA_NODES" => "few" })

    assert_setting reading, :page_reset, 1, "MIMALLOC_PAGE_RESET", given: "on"
    assert_setting reading, :reset_delay, 250, "MIMALLOC_RESET_DELAY", given: "250"
    assert_setting reading, :use_numa_nodes, nil, "default", given: "few", ignored: /neither a number/
  end

  def test_tcmalloc
    require_libraries AllocatorFixtures::TCMALLOC
    reading = allocator(preload: AllocatorFixtures::TCMALLOC, env: { "TCMALLOC_RELEASE_RATE" => "10" })

    assert_setting reading, :release_rate, "10", "TCMALLOC_RELEASE_RATE", given: "10"
    assert_match(/does not report which values/, reading.reasons.fetch(:settings))
  end
end

class AllocatorValueTest < AllocatorTest
  def test_it_is_frozen_and_survives_json
    reading = Memscope.allocator

    assert_predicate reading, :frozen?
    assert_predicate reading.settings, :frozen?
    assert_predicate reading.others, :frozen?
    assert_equal reading, Memscope::Allocator.from_h(JSON.parse(reading.to_json))
  end

  def test_bad_input_names_what_is_allowed
    hash = Memscope.allocator.to_h
    error = assert_raises(ArgumentError) { Memscope::Allocator.from_h(hash.merge(name: "jmalloc")) }
    assert_match(/name.*"jmalloc".*jemalloc, glibc/, error.message)
    error = assert_raises(ArgumentError) { Memscope::Allocator.from_h(hash.merge(settings: [{ name: "x" }])) }
    assert_match(/settings\[0\]\.source/, error.message)
  end

  # It reads no mappings again.
  def test_it_is_cheap_after_the_first_call
    allocator, mappings = %i[allocator mappings].map do |call|
      Array.new(20) { Memscope.public_send(call).cost.wall_us }.min
    end

    assert_operator allocator, :<=, mappings / 4
  end
end
