# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/in_directory"
require_relative "../support/rack_path"
require "json"
require "pathname"
require "yaml"

# The action for GitHub, whose steps run here as they do there, in a repository with two commits.
class ActionAcceptanceTest < MemscopeTest
  include InDirectory

  ACTION = File.join(ChildProcess::ROOT, "action")
  # Comparisons of a commit with itself, in rake battery:action.
  RUNS = Integer(ENV.fetch("MEMSCOPE_ACTION_RUNS", "0"))
  # Seconds: the battery may run at the lowest priority.
  TIMEOUT = RUNS.zero? ? ChildProcess::PATIENCE : 3600
  BASE = <<~RUBY
    class Shop
      def call(_env)
        names = %w[a b].map(&:upcase)
        [200, { "content-type" => "text/plain" }, names]
      end
    end
  RUBY
  # One object per request, 16 KiB that requests retain, 1 MiB at boot, each in a line of its own.
  HEAD = <<~RUBY
    # The same lines as before, one further down.
    class Shop
      TABLE = Array.new(8) { "t" * 131_072 }

      def call(_env)
        names = %w[a b].map(&:upcase)
        names << String.new
        @page ||= "p" * 16_384
        [200, { "content-type" => "text/plain" }, names]
      end
    end
  RUBY
  CONFIG = "require_relative \"shop\"\nrun Shop.new\n"
  # Writes down its arguments, and what it reads.
  GH = <<~RUBY.freeze
    #!#{RbConfig.ruby}
    require "json"
    call = JSON.generate([ARGV.join(" "), $stdin.read, ENV.fetch("GH_TOKEN")])
    File.write(ENV.fetch("GH_CALLS"), call + "\\n", mode: "a")
  RUBY

  def setup
    super
    skip_under_sanitizer
    @rack = RackPath.arguments.map { |option| option.delete_prefix("-I") }
    write("bin/gh", GH).chmod(0o755)
    write("shop/config.ru", CONFIG)
    git("init", "--quiet")
    @base = commit(BASE)
  end

  # The commit that GitHub checks out merges the pull request into a newer base than the event's, with 2 MiB more.
  def test_three_findings_in_one_comment
    commit(HEAD)
    git("checkout", "--quiet", "-b", "newer", @base)
    write("shop/config.ru", "OTHER = \"o\" * 2_097_152\n#{CONFIG}")
    commit(BASE)
    git("merge", "--quiet", "--message=merge", "-")
    ran = act(requests: "100", token: "secret", number: "7")
    lines = ran.calls.last[1].lines(chomp: true)

    assert_equal 1, ran.status, ran.err
    assert_equal ["<!-- memscope config.ru ruby #{RUBY_VERSION[/\d+\.\d+/]} -->", "### memscope: 3 findings",
                  "- **boot** takes 1.0 MiB more: `shop.rb:3` +1.0 MiB",
                  "- **GET `/`** retains 16 KiB more after 20 requests: `shop.rb:8` +16 KiB",
                  "- **GET `/`** allocates 1 more object per request: `shop.rb:7` +1"], lines.first(5)
    assert_match(/ · (?:glibc|jemalloc) \S+ serves malloc \(proved\)\z/, lines.last)
    assert_equal ["api repos/one/shop/issues/7/comments --field body=@-", "secret"], ran.calls.last.values_at(0, 2)
    assert_equal "", git("worktree", "list").lines.drop(1).join
  end

  def test_the_first_push_of_a_branch
    ran = act(event_base: "0" * 40)

    assert_equal 0, ran.status, ran.err
    assert_match(/^### memscope: no commit to compare with$/, ran.summary)
  end

  # The application can read the environment of the processes above it.
  def test_only_the_last_step_has_the_token
    steps = YAML.safe_load_file(File.join(ACTION, "action.yml"))["runs"]["steps"]

    assert_equal([false, false, true], steps.map { |step| step.to_s.include?("token") })
  end

  def test_a_commit_against_itself
    skip "runs in rake battery:action" if RUNS.zero?

    head = commit(HEAD)
    found = Array.new(RUNS) do |run|
      ran = act(base: head, requests: "100")
      puts "#{run + 1}: #{ran.status} #{ran.err}" unless ran.status.zero?
      ran.summary unless ran.status.zero?
    end

    assert_empty found.compact
  end

  private

  # `summary` is a text, `calls` of gh are lists of its arguments, its input and its token: nil if there are none.
  Ran = Struct.new(:status, :err, :summary, :calls)

  def path(name) = File.join(@directory, name)

  def write(name, text)
    FileUtils.mkdir_p(File.dirname(path(name)))
    File.write(path(name), text)
    Pathname(path(name))
  end

  def git(*arguments)
    ran = ChildProcess.run_command("git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments, chdir: path("shop"))

    assert_predicate ran, :success?, ran
    ran.out.chomp
  end

  def commit(source)
    write("shop/shop.rb", source)
    git("add", ".")
    git("commit", "--quiet", "--message=shop")
    git("rev-parse", "HEAD")
  end

  # Runs the action's steps as GitHub does, with these inputs, for a pull request with that number, or a push.
  def act(number: "", event_base: @base, **inputs)
    FileUtils.rm_f([path("summary"), path("calls")])
    action = YAML.safe_load_file(File.join(ACTION, "action.yml"))
    usual = action["inputs"].transform_values { |input| input["default"].to_s }
    given = { **usual, "prepare" => "", "token" => "", **inputs.transform_keys(&:to_s) }
    contexts = given.transform_keys { |name| "inputs.#{name}" }
    contexts.update("github.event.pull_request.number" => number,
                    "github.event.pull_request.base.sha || github.event.before" => event_base)
    _compile, compare, comment = action["runs"]["steps"].map { |step| run_step(step, contexts) }
    summary, calls = %w[summary calls].map { |name| File.read(path(name)) if File.file?(path(name)) }

    assert_predicate comment, :success?, comment
    Ran.new(compare.status.exitstatus, compare.err, summary, calls&.lines&.map { |line| JSON.parse(line) })
  end

  def run_step(step, contexts)
    variables = step["env"].to_h.transform_values { |value| contexts.fetch(value[/\A\$\{\{ (.*) \}\}\z/, 1]) }
    event = contexts["github.event.pull_request.number"].empty? ? "push" : "pull_request"
    github = { "GITHUB_ACTION_PATH" => ACTION, "GITHUB_REPOSITORY" => "one/shop", "GITHUB_EVENT_NAME" => event,
               "GITHUB_SHA" => git("rev-parse", "HEAD"), "GITHUB_STEP_SUMMARY" => path("summary"),
               "RUNNER_TEMP" => @directory, "GH_CALLS" => path("calls"),
               "PATH" => "#{path('bin')}:#{ENV.fetch('PATH')}", "RUBYLIB" => @rack.join(":") }
    ChildProcess.run_command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"],
                             env: { **github, **variables }, chdir: path("shop"), timeout: TIMEOUT)
  end
end
