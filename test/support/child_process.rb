# frozen_string_literal: true

require "json"
require "rbconfig"
require "tempfile"

# Runs Ruby in a real child process: the only way to choose an allocator, since that is decided before main.
#
# A child starts bare: no RubyGems (most of the time that Ruby takes to start), no Bundler, no allocator settings and
# no preload of the test's own process reach it, so that what it measures is what the script does. `bundler: true` is
# for scripts that need a gem of the bundle, `gems: true` for those that need one of the system's.
module ChildProcess
  ROOT = File.expand_path("../..", __dir__)

  # A shell's background job ignores the one, and what nohup runs the other; so would every child.
  %i[INT HUP].each { |signal| trap(signal, "DEFAULT") }

  # Where memscope/memscope.so is looked for first; a sanitizer build lives elsewhere than in lib/.
  EXTENSION_DIRECTORY = ENV.fetch("MEMSCOPE_EXTENSION_DIR", File.join(ROOT, "lib"))
  TEST_EXTENSION_DIRECTORY = File.join(ROOT, "tmp", "memscope_test")

  # Where a child without RubyGems finds what memscope requires and this Ruby has as a gem, or not at all: logger since
  # 4.0, rake where it was built without its gems.
  in_ruby = lambda do |name|
    Dir["{#{RbConfig::CONFIG.values_at('rubylibdir', 'vendordir').join(',')}}/#{name}.rb",
        File.join(RbConfig::CONFIG["rubylibprefix"], "gems/*/gems/#{name}-*")].any?
  end
  AMONG_GEMS = %w[logger rake].reject(&in_ruby)
                              .flat_map { |name| Gem.loaded_specs[name]&.full_require_paths.to_a }.freeze
  private_constant :AMONG_GEMS

  LOAD_PATH = [EXTENSION_DIRECTORY, File.join(ROOT, "lib"), TEST_EXTENSION_DIRECTORY, *AMONG_GEMS,
               # The gems of the bundle without the bundle, in a row of bin/matrix.
               *ENV.fetch("MEMSCOPE_TEST_PATH", "").split(":")].uniq.freeze

  # A sanitizer's run-time library, which must come first in every process that loads the extension; else nil.
  SANITIZER = ENV.fetch("MEMSCOPE_SANITIZER", nil)

  # Seconds after which a child is taken to hang. A command of a generated Rails takes some on two idle processors, and
  # many times that on slow ones that are shared.
  PATIENCE = 180

  # Why no gem of the bundle is there: only bin/matrix sets it, for its rows. Whatever asks for one then skips.
  WITHOUT_BUNDLE = ENV.fetch("MEMSCOPE_WITHOUT_BUNDLE", nil)

  # Whether this is a second run, with another Ruby and C library, of what has been said at length already: bin/test has
  # bin/matrix set it. What a test repeats to be sure of its odds or of a size is then done once.
  BRIEF = ENV.key?("MEMSCOPE_BRIEF")

  # Since Ruby 4.0 some of what comes with Ruby, and tests need, is a gem: fiddle.
  BARE = (RUBY_VERSION < "4" ? ["--disable-gems"] : []).freeze

  ALLOCATORS = { glibc: nil, jemalloc: "libjemalloc.so.2" }.freeze

  ALLOCATOR_SETTINGS = %w[MALLOC_CONF MALLOC_ARENA_MAX GLIBC_TUNABLES].freeze
  BUNDLER_SETTINGS = %w[RUBYOPT RUBYLIB BUNDLE_GEMFILE BUNDLE_BIN_PATH BUNDLER_SETUP BUNDLER_VERSION GEM_HOME
                        GEM_PATH].freeze
  private_constant :BARE, :ALLOCATOR_SETTINGS, :BUNDLER_SETTINGS

  # The child did not do what the test rests on; the message holds what it printed.
  class Failure < StandardError; end

  # What a child printed, and how it ended.
  Result = Struct.new(:out, :err, :status, keyword_init: true) do
    def success?
      status.success? == true
    end

    # The last line of standard output, parsed. Raises Failure where the child failed or printed no JSON.
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
    # raised with what it had printed.
    def run(script, preload: nil, env: {}, requires: [], ruby_args: [], timeout: PATIENCE, bundler: false,
            gems: bundler)
      raise Minitest::Skip, WITHOUT_BUNDLE if bundler && WITHOUT_BUNDLE

      requires = ["bundler/setup", *requires] if bundler
      env = { "BUNDLE_GEMFILE" => File.join(ROOT, "Gemfile"), **env } if bundler
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

    # What a child's environment has that differs from this process's, for Process.spawn.
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
