# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/rack_path"
require "memscope/cli/cli"
require "pty"
require "stringio"

# memscope leaks config.ru, as a person runs it. Of memscope leaks -- COMMAND, see launch/inside/leaks_test.rb.
class CLILeaksTest < MemscopeTest
  RACKUP = File.expand_path("../support/workloads/application.ru", __dir__)
  EXECUTABLE = File.join(ChildProcess::ROOT, "exe/memscope")

  def test_a_leak
    skip_under_sanitizer
    ran = leaks(RACKUP, "--path=/object", "--requests=100", env: { "RACK_ENV" => "test" })

    assert_equal [1, ""], [ran.status.exitstatus, ran.err]
    assert_match(/\Amemscope \S+ (?:·|-) ruby \S+ (?:·|-) RAILS_ENV test (?:·|-) pid \d+$/, ran.out)
    assert_match(/^ +requests +objects +slots MiB +malloc MiB +RSS MiB$/, ran.out)
    assert_match(/^ +100( +[\d,.]+){4}$/, ran.out)
    assert_match(/^  Each of the last 50 requests added \+1\.\d objects/, ran.out)
    assert_match(/^  Leak: memory grows in each .*:\n\n  \+1 Kept per request \(10, 10, 10, 10, 10\)$/, ran.out)
    assert_match(/^    allocated at .*\.ru:\d+: 20 are left.*\n    held by .*Proc at .*\.ru:\d+ .* Kept$/, ran.out)
    assert_match(/It is a leak, or a cache .*: use\s+--requests=1000\s+to\s+tell/m, ran.out)
  end

  def test_nothing_grows
    skip_under_sanitizer
    ran = leaks(RACKUP, "--json", "--requests=100", "--path=/logging")

    assert_equal [0, "a log\n" * 100], [ran.status.exitstatus, ran.err], ran
    assert_equal :steady, Memscope::Check.from_json(ran.out).verdict
  end

  def test_a_failure
    ran = leaks(RACKUP, "--path=/raise")

    assert_equal [74, ""], [ran.status.exitstatus, ran.out]
    assert_match(%r{\Amemscope leaks: GET /raise raised IndexError: no such order at }, ran.err)
    ran = leaks(RACKUP, "--path=/stop")

    assert_equal [74, "", "memscope leaks: interrupted\n"], [ran.status.exitstatus, ran.out, ran.err]
  end

  # It is shown only on a terminal, and is gone at the end.
  def test_progress
    command = [*ChildProcess.ruby, *RackPath.arguments, EXECUTABLE, "leaks", RACKUP, "--requests=100"]
    output, _input, pid = PTY.spawn({ "RUBYOPT" => nil }, "sh", "-c", 'exec "$@" >/dev/null', "sh", *command)
    text = +""
    loop { text << output.readpartial(4096) }
  rescue EOFError, Errno::EIO
    Process.wait(pid)

    steps = (0..10).map { |round| "#{10 * round} of 100 requests" }

    assert_equal ["", *steps, "\e[K"], text.split("\r")
  end

  { [] => "given nothing, allowed: a rackup file such as config.ru, -- COMMAND",
    %w[one.ru] => "given one.ru, allowed: a rackup file such as config.ru, -- COMMAND",
    %w[one.ru two.ru] => "unexpected argument: two.ru; allowed: ",
    %w[one.ru --requests=99] => "--requests: given \"99\", allowed: a number from 100 to 1000000",
    %w[one.ru --path=orders] => "--path: given \"orders\", allowed: a path that begins with /",
    %w[one.ru --threshold=3] => "--threshold is only for -- COMMAND" }
    .each do |arguments, message|
    define_method("test_wrong_arguments_#{arguments.join('_').gsub(/\W+/, '_')}") do
      err = StringIO.new

      assert_equal 64, Memscope::CLI.run(["leaks", *arguments], out: StringIO.new, err: err)
      assert_includes err.string, "memscope leaks: #{message}"
    end
  end

  private

  def leaks(*arguments, env: {})
    ChildProcess.run_command(*ChildProcess.ruby, *RackPath.arguments, EXECUTABLE, "leaks", *arguments, env: env)
  end
end
