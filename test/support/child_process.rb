# frozen_string_literal: true

require "json"
require "rbconfig"
require "tempfile"

# Runs Ruby in a real child process: the only way to choose an allocator, since that is decided before main.
#
# A child starts bare, so that it measures only the script: without RubyGems (most of the time that Ruby takes to
# start), and without the Bundler, the allocator settings and the preloads of the test's own process. `bundle: true` is
# for scripts that need a gem of the bundle, `gems: true` for those that need one of the system's.
module ChildProcess
  ROOT = File.expand_path("../..", __dir__)

  # A shell's background job ignores SIGINT, and a command under nohup SIGHUP. Every child would inherit that.
  %i[INT HUP].each { |signal| trap(signal, "DEFAULT") }

  # The first directory to search for memscope/memscope.so. A sanitizer build is not in lib/.
  EXTENSION_DIRECTORY = ENV.fetch("MEMSCOPE_EXTENSION_DIR", File.join(ROOT, "lib"))
  TEST_EXTENSION_DIRECTORY = File.join(ROOT, "tmp", "memscope_test")

  # Where a child without RubyGems finds libraries that memscope requires but this Ruby has only as gems, or not at all:
  # logger since 4.0; rake if Ruby was built without its gems.
  in_ruby = lambda do |name|
    Dir["{#{RbConfig::CONFIG.values_at('rubylibdir', 'vendordir').join(',')}}/#{name}.rb",
        File.join(RbConfig::CONFIG["rubylibprefix"], "gems/*/gems/#{name}-*")].any?
  end
  AMONG_GEMS = %w[logger rake].reject(&in_ruby)
                              .flat_map { |name| Gem.loaded_specs[name]&.full_require_paths.to_a }.freeze
  private_constant :AMONG_GEMS

  LOAD_PATH = [EXTENSION_DIRECTORY, File.join(ROOT, "lib"), TEST_EXTENSION_DIRECTORY, *AMONG_GEMS,
               # In a row of bin/matrix: the bundle's gems, without Bundler.
               *ENV.fetch("MEMSCOPE_TEST_PATH", "").split(":")].uniq.freeze

  # A sanitizer's run-time library, which must be preloaded first in every process that loads the extension; nil without
  # a sanitizer.
  SANITIZER = ENV.fetch("MEMSCOPE_SANITIZER", nil)

  # Seconds after which a child counts as hung. A command in a generated Rails application takes some seconds on two
  # idle processors, and many times that on slow, shared ones.
  PATIENCE = 300

  # Why no gem of the bundle is available: only bin/matrix sets it, for its rows. Tests that need one are then skipped.
  WITHOUT_BUNDLE = ENV.fetch("MEMSCOPE_WITHOUT_BUNDLE", nil)

  # RUBYLIB of a child that needs gems of the bundle, which this process has found: Bundler takes a third of a second.
  BUNDLE = { "RUBYLIB" => Gem.loaded_specs.each_value.flat_map(&:full_require_paths).join(":") }.freeze

  # Whether the tests of this run also run in full elsewhere: true with another Ruby and C library (bin/matrix) and
  # under sanitizers (rake test:asan). Repetitions for better odds, or for several sizes, are then left out.
  BRIEF = ENV.key?("MEMSCOPE_BRIEF")

  # Since Ruby 4.0, fiddle, which tests need, comes with Ruby only as a gem.
  BARE = (RUBY_VERSION < "4" ? ["--disable-gems"] : []).freeze

  ALLOCATORS = { glibc: nil, jemalloc: "libjemalloc.so.2" }.freeze

  ALLOCATOR_SETTINGS = %w[MALLOC_CONF MALLOC_ARENA_MAX GLIBC_TUNABLES].freeze
  BUNDLER_SETTINGS = %w[RUBYOPT RUBYLIB BUNDLE_GEMFILE BUNDLE_LOCKFILE BUNDLE_BIN_PATH BUNDLER_SETUP BUNDLER_VERSION
                        GEM_HOME GEM_PATH].freeze
  private_constant :BARE, :ALLOCATOR_SETTINGS, :BUNDLER_SETTINGS

  # The child failed. The message contains its output.
  class Failure < StandardError; end

  # What a child printed, and how it ended.
  Result = Struct.new(:out, :err, :status, keyword_init: true) do
    def success?
      status.success? == true
    end

    # The last line of standard output, parsed. Raises Failure if the child failed or printed no JSON.
    def json
      raise Failure, "the child failed: #{self}" unless success?

      JSON.parse(out.lines.last.to_s)
    rescue JSON::ParserError
      raise Failure, "the child's last line is not JSON: #{self}"
    end

    def to_s
      "#{status}\n--- stdout\n#{out}\n--- stderr\n#{err}"
    end
  end

  class << self
    # Runs script (Ruby source) and waits for it. On timeout the child's whole process group is killed and Failure is
    # raised with the output so far.
    def run(script, preload: nil, env: {}, requires: [], ruby_args: [], timeout: PATIENCE, bundle: false,
            gems: bundle)
      raise Minitest::Skip, WITHOUT_BUNDLE if bundle && WITHOUT_BUNDLE

      env = { **BUNDLE, **env } if bundle
      run_command(*ruby(gems: gems), *ruby_args, *requires.map { |feature| "-r#{feature}" }, "-e", script,
                  preload: preload, env: env, timeout: timeout)
    end

    # @return [Array<String>] the command of a bare Ruby that finds memscope
    def ruby(gems: false)
      [RbConfig.ruby, *(BARE unless gems), *LOAD_PATH.map { |directory| "-I#{directory}" }]
    end

    # Runs any command with the environment that a Ruby child gets.
    def run_command(*command, preload: nil, env: {}, timeout: PATIENCE, chdir: Dir.pwd)
      execute(command, environment(preload, env), timeout, chdir)
    end

    # The differences of a child's environment from this process's, for Process.spawn.
    def environment(preload, env)
      preloads = [SANITIZER, preload].compact
      bare = (ALLOCATOR_SETTINGS + BUNDLER_SETTINGS).to_h { |name| [name, nil] }
      bare["LD_PRELOAD"] = preloads.empty? ? nil : preloads.join(":")
      bare.merge(env)
    end

    private

    # The output goes through files, not pipes: a grandchild that outlives the child must not keep this waiting.
    def execute(command, environment, timeout, chdir)
      Tempfile.create("out") do |out|
        Tempfile.create("err") do |err|
          pid = Process.spawn(environment, *command, in: File::NULL, out: out, err: err, pgroup: true, chdir: chdir)
          status = wait(pid, timeout)
          result = Result.new(out: File.read(out.path), err: File.read(err.path), status: status || "timed out")
          raise Failure, "the child was killed after #{timeout} s: #{result}" unless status

          result
        end
      end
    end

    def wait(pid, timeout)
      waiter = Process.detach(pid)
      return waiter.value if waiter.join(timeout)

      Process.kill(:KILL, -pid)
      waiter.join
      nil
    end
  end
end
