# frozen_string_literal: true

require "minitest/autorun"
require "open3"
require "yaml"
require_relative "../support/in_directory"
require_relative "../../rakelib/native"

# What the task `native` puts into a binary gem, and refuses. rake battery:gems builds and installs whole gems.
class NativeTest < Minitest::Test
  include InDirectory

  PACKED = "static int number; int *pointers[] = {&number, &number, &number, &number};"

  def test_a_library_that_loads_everywhere
    assert_empty NativeGems.flaws(compiled("-Wl,-z,now"))
  end

  def test_one_that_binds_lazily
    assert_equal ["binds lazily"], NativeGems.flaws(compiled("-Wl,-z,lazy"))
  end

  def test_one_with_packed_relocations
    library = compiled("-Wl,-z,now", "-Wl,-z,pack-relative-relocs", source: PACKED)

    assert_equal ["needs GLIBC_ABI_DT_RELR", "has RELR"], NativeGems.flaws(library)
  end

  def test_one_that_needs_a_newer_glibc
    library = compiled("-Wl,-z,now", source: "int _dl_find_object(void *, void *); int f(void) { return " \
                                             "_dl_find_object(0, 0); }")

    assert_equal ["needs GLIBC_2.35"], NativeGems.flaws(library)
  end

  def test_one_with_another_library_and_a_path
    compiled(name: "libother.so")
    library = compiled("-Wl,-z,now", "-Wl,--no-as-needed", "-L#{@directory}", "-lother",
                       "-Wl,--enable-new-dtags,-rpath,/somewhere")

    assert_equal ["needs libother.so", "has RUNPATH"], NativeGems.flaws(library)
  end

  def test_what_is_no_library
    File.write(File.join(@directory, "empty.so"), "")
    flaws = nil
    capture_subprocess_io { flaws = NativeGems.flaws(File.join(@directory, "empty.so")) }

    assert_includes flaws, "names no version of glibc"
  end

  def test_the_specification
    spec = specification("3.9", "3.10", "3.1")

    assert_equal "memscope-#{spec.version}-x86_64-linux-gnu.gem", spec.file_name
    assert_equal(%w[3.1.0 3.10.4], %w[3.0.9 3.1.0 3.10.4 3.11.0.dev 4.0.0].select { |one| suits?(spec, one) })
    assert_equal(%w[3.9.2], %w[3.8.1 3.9.2 3.10.0.dev].select { |one| suits?(specification("3.9"), one) })
    assert_equal(">= 3.3.22", spec.required_rubygems_version.to_s)
    assert_empty spec.extensions
    assert_equal(%w[3.1 3.10 3.9].map { |minor| "lib/memscope/#{minor}/memscope.so" }, spec.files.grep(/\.so\z/).sort)
    assert_empty spec.files.grep(%r{\Aext/})
    assert_includes spec.files, "lib/memscope.rb"
  end

  def test_musl_does_not_take_it
    skip "this RubyGems knows no musl" if Gem::Version.new(Gem::VERSION) < Gem::Version.new("3.3.22")
    spec = specification("3.1")
    takes = %w[x86_64-linux x86_64-linux-gnu x86_64-linux-musl aarch64-linux].select do |local|
      Gem::Platform.new(local) === spec.platform # rubocop:disable Style/CaseEquality -- how RubyGems asks
    end

    assert_equal %w[x86_64-linux x86_64-linux-gnu], takes
  end

  def test_the_rubies_below_prefixes
    plant("debian/lib/x86_64-linux-gnu/ruby/3.3.0", %w[3 3 x86_64])
    plant("debian/lib/x86_64-linux-gnu/ruby/3.4.0", %w[3 4 x86_64])
    plant("built/lib/ruby/3.4.0/x86_64-linux", %w[3 4 x86_64])
    plant("arm/lib/ruby/3.4.0/aarch64-linux", %w[3 4 aarch64])
    found = NativeGems::Target.below(%w[debian built arm].map { |name| "#{@directory}/#{name}" })

    assert_equal ["aarch64-linux-gnu 3.4", "x86_64-linux-gnu 3.3", "x86_64-linux-gnu 3.4"],
                 found.map { |target| "#{target.platform} #{target.minor}" }.sort
  end

  def test_where_there_is_no_ruby
    error = assert_raises(RuntimeError) { NativeGems.build([@directory]) }

    assert_equal "no rbconfig.rb of a Ruby below #{@directory}", error.message
  end

  def test_a_minor_version_between_others_is_not_left_out
    %w[3.1 3.4].each { |minor| plant("one/lib/ruby/#{minor}.0/x86_64-linux", [*minor.split("."), "x86_64"]) }
    error = assert_raises(RuntimeError) { NativeGems.build(["#{@directory}/one"], without: ["3.3"]) }

    assert_equal "the gem for x86_64-linux-gnu has no extension for Ruby 3.2, 3.3: add it to MEMSCOPE_NATIVE_RUBIES, " \
                 "or allow it by MEMSCOPE_NATIVE_WITHOUT=3.2,3.3", error.message
    assert_empty NativeGems.gaps(%w[3.4 3.2 3.3])
    assert_equal %w[3.4], NativeGems.gaps(%w[3.3 4.0 4.1])
  end

  def test_a_release_leaves_none_out
    jobs = YAML.safe_load_file(File.expand_path("../../.github/workflows/release.yml", __dir__)).fetch("jobs")
    versions = jobs.dig("gems", "steps").filter_map { |step| step.dig("with", "ruby-version") }

    assert_equal NativeGems::MINORS, versions.sort
  end

  # Without a lockfile, each release takes their newest versions.
  def test_a_release_is_built_with_few_gems
    job = YAML.safe_load_file(File.expand_path("../../.github/workflows/release.yml", __dir__)).dig("jobs", "gems")
    groups = File.read(File.expand_path("../../Gemfile", __dir__)).split(/^group /)

    assert_equal({ "BUNDLE_ONLY" => "default" }, job["env"])
    assert_equal %w[minitest rake rake-compiler], groups.first.scan(/^gem "(.+?)"/).flatten
  end

  private

  def specification(*minors)
    Dir.chdir(File.expand_path("../..", __dir__)) { NativeGems.specification("x86_64-linux-gnu", minors) }
  end

  def suits?(spec, version) = spec.required_ruby_version.satisfied_by?(Gem::Version.new(version))

  # Needs a symbol of each glibc.
  def compiled(*flags, source: "int puts(const char *); int f(void) { return puts(\"\"); }", name: "one.so")
    path = File.join(@directory, name)
    source = "#{source}\nint puts(const char *); int g(void) { return puts(\"\"); }" unless source.include?("puts")
    said, status = Open3.capture2e("gcc", "-shared", "-fPIC", "-xc", "-", "-o", path, *flags, stdin_data: source)
    skip "gcc, or a linker that takes #{flags.join(' ')}, is not installed" if said.include?("unknown -z")

    assert_predicate status, :success?, said
    path
  end

  def plant(directory, (major, minor, cpu))
    FileUtils.mkdir_p("#{@directory}/#{directory}")
    File.write("#{@directory}/#{directory}/rbconfig.rb", <<~RUBY)
      CONFIG["MAJOR"] = "#{major}"
        CONFIG["MINOR"] = "#{minor}"
      CONFIG["host_cpu"] = "$(target_cpu)"
      CONFIG["target_cpu"] = "#{cpu}"
    RUBY
  end
end
