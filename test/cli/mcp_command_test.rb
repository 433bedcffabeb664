# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/command_line"
require_relative "../support/listening"
require_relative "../support/mcp_session"
require "io/wait"

class McpCommandTest < MemscopeTest
  include CommandLine

  READ = %w[ps doctor watch report heap profile tags postmortem].freeze
  REQUIRED = Hash.new(["pid"].freeze).merge("ps" => [], "postmortem" => []).freeze
  # A process with a secret in its objects, which listens.
  SECRET = "canary-4b1d77"
  PROGRAM = <<~RUBY
    secret = [%w[canary 4b1d77].join("-")].first
    class Account; def initialize(secret) = @secrets = { secret => [secret * 2] }; end
    ACCOUNTS = Array.new(20_000) { |number| Account.new("\#{secret} \#{number}") }
    Memscope.listen
    $stdout.syswrite("ready\n")
    sleep
  RUBY

  def setup
    skip_under_sanitizer
  end

  # @yieldparam session [McpSession]
  # @yieldparam pid [Integer] of a process that runs the program
  def asking(program = PROGRAM)
    McpSession.open do |session|
      IO.popen([*ChildProcess.ruby, "-rmemscope", "-e", program]) do |output|
        assert_equal "ready\n", output.gets
        yield session, output.pid
      ensure
        Process.kill(:KILL, output.pid)
      end
    end
  end

  def test_the_tools_only_read
    McpSession.open do |session|
      tools = session.tools

      assert_equal READ, tools.map(&:name)
      tools.each do |tool|
        assert_equal [tool.name, true], [tool.name, tool.annotations["readOnlyHint"]]
        assert_equal REQUIRED[tool.name], tool.input_schema["required"]
        assert_empty tool.input_schema["properties"].keys & %w[gc output so pause format rate], tool.name
      end
      heap = tools.find { |tool| tool.name == "heap" }.input_schema["properties"]

      assert_equal({ "type" => "string", "description" => "print what retains instances of CLASS" }, heap["paths_to"])
      assert_equal ["integer", 5], heap["top"].values_at("type", "default")
      assert_equal "boolean", heap["strings"]["type"]
      assert_match(/\Amemscope answers questions about the memory of Ruby processes/, session.instructions)
      assert_operator tools.sum { |tool| JSON.generate([tool.name, tool.description, tool.input_schema]).bytesize },
                      :<, 12_000
    end
  end

  def test_no_answer_is_long_or_has_contents
    asking do |session, pid|
      questions = (READ - ["postmortem"]).map { |tool| [tool, {}] } +
                  [["heap", { paths_to: "Account" }], ["heap", { strings: true, top: 100 }], ["report", { deep: true }],
                   ["report", { mappings: true }], ["profile", { objects: true, seconds: 1 }]]
      questions.each do |tool, arguments|
        arguments = { seconds: 1, **arguments } if tool == "profile"
        said = session.ask(tool, **({ pid: pid } unless tool == "ps").to_h, **arguments)

        assert_operator said.text.bytesize, :<=, 8_000, tool
        refute_includes said.text.sub(/ -e .*/, ""), SECRET, tool
        refute_includes said.hints.to_s, SECRET
        assert_match(/^confidence: \S/, said.text)
        refute said.failed, said.text
      end
      assert_includes session.ask("heap", pid: pid).text, "ACCOUNTS → Array, holding 20,000 Account"
    end
  end

  def test_other_parts_are_of_the_same_reading
    asking do |session, pid|
      first = session.ask("report", pid: pid, mappings: true)
      call = first.text[/^\d+ more lines: report (.*)$/, 1]
      second = session.ask("report", **JSON.parse(call, symbolize_names: true))

      assert_equal 2, JSON.parse(call)["part"]
      refute_includes second.text, "memscope #{Memscope::VERSION} "
      assert_empty mappings(first) & mappings(second)
    end
  end

  def mappings(said) = said.text.scan(/\h{8,}-\h{8,}/)

  def test_what_is_wrong_is_said_in_one_answer
    McpSession.open do |session|
      gone = Process.wait(spawn("true"))
      said = session.ask("heap", pid: gone)

      assert said.failed
      assert_match(/\Ano process #{gone}|process #{gone}/, said.text)
      assert_equal "none: there is no reading", said.hints[:confidence]
      assert_match(/disallowed additional property/, session.ask("heap", pid: gone, contents: true).text)
      assert_match(/backend.*jemalloc, imports/m, session.ask("profile", pid: Process.pid, backend: "none").text)
    end
  end

  def test_a_profile_takes_at_most_a_minute
    McpSession.open do |session|
      { 61 => /seconds.* 60\b/, 0 => /seconds.*above 0/, -1 => /seconds.*above 0/ }.each do |seconds, refusal|
        said = session.ask("profile", pid: Process.pid, seconds: seconds)

        assert said.failed
        assert_match(refusal, said.text)
      end
      assert_match(/above 0, up to 60\z/, session.tools.find { |tool| tool.name == "profile" }
                                                .input_schema.dig("properties", "seconds", "description"))
    end
  end

  def test_a_profile_ends_when_the_assistant_goes
    asking do |_session, pid|
      profiled = Memscope::Client.new(pid)
      server = IO.popen([RbConfig.ruby, "-rbundler/setup", McpSession::EXE, "mcp"], "r+")
      request(server, 1, "initialize", protocolVersion: "2025-06-18", capabilities: {},
                                       clientInfo: { name: "test", version: "1" })
      server.gets
      request(server, 2, "tools/call", name: "profile", arguments: { pid: pid, seconds: 60 })
      sleep 0.05 until profiled.call(:malloc_profile_state)["running"] || server.wait_readable(0)
      gone = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      server.close_write

      assert_match(/"confidence":"estimates from samples/, server.read)
      assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - gone, :<, 50
      refute profiled.call(:malloc_profile_state)["running"]
    ensure
      server&.close
    end
  end

  def request(server, id, method, **params)
    server.puts JSON.generate(jsonrpc: "2.0", id: id, method: method, params: params)
  end

  def test_a_whole_float_is_an_integer
    McpSession.open do |session|
      assert_includes session.ask("report", pid: Process.pid.to_f, part: 1.0).text, "pid #{Process.pid}"
      assert_match(/pid/, session.ask("report", pid: 1.5).text)
    end
  end

  # A process without a history is not watched until it has one.
  def test_a_process_without_a_history
    asking do |session, pid|
      said = session.ask("watch", pid: pid)

      refute said.failed
      assert_match(/history/, said.text)
    end
  end

  def test_about_one_process_only
    asking do |_session, pid|
      McpSession.open("--pid", pid.to_s) do |session|
        assert_equal READ - %w[ps postmortem], session.tools.map(&:name)
        assert_includes session.ask("report").text, "pid #{pid}"
        assert session.ask("report", pid: Process.pid).failed
      end
    end
  end

  def test_without_the_gem
    ran = ChildProcess.run_command(*command("mcp"))

    assert_equal 74, ran.status.exitstatus
    assert_equal "memscope mcp: it needs the gem mcp, which is not installed: add `gem \"mcp\", \"~> 1.9\"` to the " \
                 "Gemfile, or run gem install mcp\n", ran.err
  end
end
