# frozen_string_literal: true

require_relative "child_process"

# `memscope mcp`, or another server, in a process of its own, asked by the gem mcp's client.
class McpSession
  EXE = File.join(ChildProcess::ROOT, "exe", "memscope")
  # hints: the structured content, with symbols as keys.
  Said = Struct.new(:text, :hints, :failed)

  def self.open(*options, &) = with(RbConfig.ruby, EXE, "mcp", *options, env: ChildProcess::BUNDLE, &)

  # Another server, by its command.
  def self.with(command, *arguments, env: {})
    raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE

    require "mcp"
    transport = MCP::Client::Stdio.new(command: command, args: arguments, env: env, read_timeout: ChildProcess::PATIENCE)
    yield new(MCP::Client.new(transport: transport))
  ensure
    transport&.close
  end

  def initialize(client)
    @client = client
    @client.connect(client_info: { name: "test", version: "1" })
  end

  def tools = @client.tools

  def instructions = @client.instructions

  # @return [Said]
  def ask(tool, **arguments)
    result = @client.call_tool(name: tool, arguments: arguments).fetch("result")
    hints = result["structuredContent"] && JSON.parse(JSON.generate(result["structuredContent"]), symbolize_names: true)
    Said.new(result["content"].map { |content| content["text"] }.join, hints, result["isError"])
  end
end
