# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/malloc_profile_ways"
require "fileutils"
require "tmpdir"

# The application's line in a malloc profile: an application, deployed as by Capistrano, holds known amounts of memory
# that gems, its own engine and the standard library allocate for it.
class MallocProfileCallerTest < MemscopeTest
  extend MallocProfileWays

  parallelize_me!

  KEPT = 400 * 10_000
  GEM = "vendor/bundle/ruby/3.1.0/gems/thing-1.2"
  # Each line of Report that holds memory, and the file that allocates it.
  FILES = {
    "Gemfile" => <<~RUBY,
      gem "billing", path: "engines/billing-2.0"
      gem "common", path: "../common"
    RUBY
    "app/report.rb" => <<~RUBY,
      require "psych"
      require "ripper"
      module Report
        KEPT = []
        module_function
        def own = 400.times { KEPT << ("x" * 10_000) }
        def installed = 400.times { KEPT << Thing.make { 10_000 } }
        def common = 400.times { KEPT << Common.make(10_000) }
        def psych = 400.times { KEPT << Psych.load("x" * 10_000) }
        def ripper = KEPT << Ripper.sexp("foo(1, 2, [:bar, 'x'])\\n" * 8_000)
        def engine = 400.times { KEPT << Billing.make(10_000) }
        eval("def evaluated = 400.times { KEPT << ('x' * 10_000) }")
        def anonymous = evaluated
      end
    RUBY
    "engines/billing-2.0/lib/billing.rb" => "module Billing\n  def self.make(bytes) = 'x' * bytes\nend\n",
    "../../common/lib/common.rb" => "module Common\n  def self.make(bytes) = 'x' * bytes\nend\n",
    "#{GEM}/lib/thing.rb" => "module Thing\n  def self.make = 'x' * yield\nend\n",
    "engines/billing-2.0/billing.gemspec" => "billing", "../../common/common.gemspec" => "common"
  }.freeze
  SPECIFICATION = <<~RUBY
    Gem::Specification.new do |spec|
      spec.name = %p
      spec.version = "2.0"
      spec.summary = spec.name
      spec.authors = ["memscope"]
    end
  RUBY
  # Reads the profile in a trap handler: reading it queries Bundler.
  SCRIPT = <<~RUBY.freeze
    $LOAD_PATH.unshift("#{GEM}/lib")
    %w[thing billing common ./app/report].each { |file| require file }
    Report.ripper
    Report::KEPT.clear
    Memscope::MallocProfile.start(rate: 1 << 14, backend: ENV.fetch("BACKEND").to_sym)
    4000.times { "y" * 10_000 } # past the interval that jemalloc drew at the previous rate
    trap(:USR1) { $profile = Memscope::MallocProfile.snapshot }
    %i[own installed common psych ripper engine anonymous].each { |name| Report.public_send(name) }
    GC.start
    Process.kill(:USR1, $$)
    sleep 0.001 until $profile
    puts $profile.to_json
  RUBY

  def setup
    super
    skip "this Ruby has no Bundler" if Gem::Specification.find_all_by_name("bundler").empty?

    @top = File.realpath(Dir.mktmpdir("memscope"))
    @release = File.join(@top, "releases/1")
    FILES.each do |name, text|
      path = File.expand_path(name, @release)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, name.end_with?("gemspec") ? format(SPECIFICATION, text) : text)
    end
    File.symlink(@release, File.join(@top, "current"))
  end

  def teardown
    FileUtils.remove_entry(@top) if @top
    super
  end

  # Loads the profile in another process and directory than the application's, whose release is deleted by then.
  def profile(settings)
    command = [*ChildProcess.ruby(gems: true), "-rbundler/setup", "-rmemscope", "-e", SCRIPT]
    env = { **settings[:env], "BUNDLE_GEMFILE" => File.join(@top, "current/Gemfile"), "HOME" => @top }
    ran = ChildProcess.run_command(*command, preload: settings[:preload], env: env, chdir: File.join(@top, "current"))

    assert_predicate ran, :success?, ran.to_s
    FileUtils.rm_rf(@release)
    Memscope::Profile.from_json(ran.out.lines.last)
  end

  def line(of) = FILES["app/report.rb"].lines.index { |text| text.match?(/\b#{of} = /) } + 1

  def report(of) = "#{@release}/app/report.rb:#{line(of)}"

  def assert_holds(profile, name, from)
    entry = profile.by(:caller).find { |one| one.to_s.start_with?("#{report(name)} ") }

    assert_in_delta KEPT, entry.live_bytes, (5 * entry.error_bytes) + 20_000, name
    return assert_empty(entry.lines, name) unless from

    assert_match from, entry.lines.first.first
    assert_in_delta KEPT, entry.lines.sum(&:last), (5 * entry.error_bytes) + 20_000, name
  end

  each_way("the_applications_line", MallocProfileWays::EACH_BACKEND, in_full: [:jemalloc]) do |settings|
    profile = profile(settings)

    assert_equal [@release, :bundler], [profile.application_root, profile.application_root_source]
    { own: nil, installed: %r{thing-1\.2/lib/thing\.rb:2\z}, common: %r{#{@top}/common/lib/common\.rb:2\z},
      psych: /psych.*\.rb:\d+\z/ }.each { |name, from| assert_holds(profile, name, from) }
    engine = profile.by(:caller).find { |entry| entry.name == "Billing.make" }

    assert_equal ["#{@release}/engines/billing-2.0/lib/billing.rb", []], [engine.path, engine.lines]
    assert_in_delta KEPT, engine.live_bytes, 5 * engine.error_bytes
    assert_of_ripper profile
    assert_evaluated profile
    assert_includes profile.to_s(by: :caller), " app/report.rb:#{line(:own)}"
  end

  # Ripper allocates on many lines of its own.
  def assert_of_ripper(profile)
    lines = profile.by(:line).select { |entry| entry.path&.match?(%r{/ripper/\w+\.rb\z}) && entry.live_bytes.positive? }

    refute_empty lines
    lines.each { |entry| assert_equal [[report(:ripper), entry.live_bytes]], entry.callers }
  end

  # Before Ruby 3.3, the path of evaluated code names no file; since then, it names the file that called eval.
  def assert_evaluated(profile)
    entry = profile.by(:line).find { |one| one.path&.start_with?("(eval") }
    caller = profile.by(:caller).find { |one| one.path == entry.path || one.to_s.start_with?(report(:anonymous)) }

    assert_equal RUBY_VERSION < "3.3" ? [[report(:anonymous), entry.live_bytes]] : [], entry.callers
    assert_in_delta KEPT, caller.live_bytes, 5 * caller.error_bytes
  end
end
