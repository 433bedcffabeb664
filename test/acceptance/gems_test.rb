# frozen_string_literal: true

require_relative "../test_helper"
require "rubygems/package"
require "tmpdir"

# The built gems, as a Ruby without a compiler installs them: the binary gem reads, the source gem says what it needs.
#
# `rake battery:gems` builds them, and runs this for each of their Rubies that runs here, and in row d of bin/matrix,
# where no compiler is installed. Here, no program is on the PATH.
class GemsTest < MemscopeTest
  DIRECTORY = ENV.fetch("MEMSCOPE_GEMS", "")
  RUBIES = ENV.fetch("MEMSCOPE_GEM_RUBIES", RbConfig.ruby).split(":").freeze
  # RubyGems before it takes binary gems for glibc on musl too, so these refuse it.
  OLDEST_RUBYGEMS = Gem::Version.new("3.3.22")

  RUBIES.each do |ruby|
    define_method("test_the_binary_gem_of_#{ruby}") do
      gem = built("-#{RbConfig::CONFIG['target_cpu']}-linux-gnu")
      installing(ruby, gem) do |installed, home|
        if Gem::Version.new(rubygems(ruby)) < OLDEST_RUBYGEMS
          assert_includes installed.err, "RubyGems version >= #{OLDEST_RUBYGEMS}", installed
        else
          assert_predicate installed, :success?, installed
          assert_reads(ruby, home)
          tell(ruby, gem, home)
        end
      end
    end

    define_method("test_the_source_gem_without_a_compiler_of_#{ruby}") do
      installing(ruby, built("")) do |installed|
        refute_predicate installed, :success?, installed
        assert_match(/which needs a C compiler, make, and the headers|can't find header files for ruby/,
                     installed.to_s)
      end
    end
  end

  def test_the_source_gem_with_a_compiler
    skip "no compiler here" unless system("gcc", "--version", out: File::NULL, err: File::NULL)
    gem = built("")
    installing(RbConfig.ruby, gem, path: ENV.fetch("PATH")) do |installed, home|
      assert_predicate installed, :success?, installed
      assert_reads(RbConfig.ruby, home)
      tell(RbConfig.ruby, gem, home)
    end
  end

  private

  def built(platform)
    skip "rake battery:gems builds them" if DIRECTORY.empty?

    File.join(DIRECTORY, "memscope-#{Memscope::VERSION}#{platform}.gem")
  end

  def rubygems(ruby) = ChildProcess.run_command(ruby, "-e", "print Gem::VERSION").out

  def installing(ruby, gem, path: "/nowhere")
    Dir.mktmpdir do |home|
      began = seconds
      installed = run_gem(ruby, home, "-S", gem_command(ruby), "install", "--local", "--no-document",
                          "--install-dir", home, gem, path: path)
      @took = seconds.zip(began).map { |after, before| after - before }
      yield installed, home
    end
  end

  # Of the clock, and of the CPU for child processes.
  def seconds
    times = Process.times
    [Process.clock_gettime(Process::CLOCK_MONOTONIC), times.cutime + times.cstime]
  end

  # That of this Ruby: /usr/bin may have gem3.3 alone.
  def gem_command(ruby)
    ["gem", "gem#{ruby[/ruby([\d.]+)\z/, 1]}"].map { |name| File.join(File.dirname(ruby), name) }
                                              .find { |path| File.exist?(path) }
  end

  def assert_reads(ruby, home)
    report = run_gem(ruby, home, "#{home}/bin/memscope", "report", "--", ruby, "-e", "1")

    assert_predicate report, :success?, report
    assert_match(/The kernel says +[\d.]+ MiB/, report.err, report)
  end

  def run_gem(ruby, home, *arguments, path: "/nowhere")
    ChildProcess.run_command(ruby, *arguments, env: { "PATH" => path, "GEM_HOME" => home, "GEM_PATH" => home })
  end

  # Without the copy of the gem that RubyGems keeps.
  def tell(ruby, gem, home)
    size = Dir["#{home}/{gems,extensions}/**/*"].sum { |path| File.file?(path) ? File.size(path) : 0 }
    sizes = [File.size(gem), size].map { |bytes| "#{bytes.fdiv(1 << 20).round(1)} MiB" }
    puts "#{File.basename(gem)} with #{ruby}: #{sizes.join(', installed ')}, in #{@took.first.round(1)} s " \
         "(CPU time #{@took.last.round(1)} s)"
  end
end
