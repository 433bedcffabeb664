# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/heap_leaks"
require_relative "../support/mcp_session"
require "tmpdir"

# An assistant that knows nothing, and only follows the first call of each answer, reaches the retainer of a leak in a
# process that has not loaded memscope: in at most four calls and 8,000 tokens, of four bytes each.
class McpAcceptanceTest < MemscopeTest
  CALLS = 4
  BYTES = 32_000
  FEW = %i[subscribers thread_locals].freeze

  def self.find(name, allocator)
    define_method("test_the_retainer_of_#{name}_under_#{allocator}") do
      skip_under_sanitizer
      leak = HeapLeaks::ALL.fetch(name)
      leaking(leak, ChildProcess::ALLOCATORS.fetch(allocator)) do |pid|
        said = McpSession.open { |session| walk(session, pid, leak) }

        refute_nil said.last[:found], said.map { |one| one[:text] }.join("\n")
        assert_operator said.sum { |one| one[:text].bytesize }, :<=, BYTES
      end
    end
    "test_the_retainer_of_#{name}_under_#{allocator}"
  end

  HeapLeaks::ALL.each_key do |name|
    ChildProcess::ALLOCATORS.each_key do |allocator|
      test = find(name, allocator)
      only_in_full(test) unless FEW.include?(name) && allocator == :glibc
    end
  end

  private

  # @yieldparam pid [Integer] of a process with the leak
  def leaking(leak, preload)
    IO.popen([ChildProcess.environment(preload, {}), RbConfig.ruby, "--disable-gems", "-e",
              "#{leak.script}\nputs 'ready'\n$stdout.flush\nsleep"]) do |output|
      assert_equal "ready\n", output.gets
      yield output.pid
    ensure
      Process.kill(:KILL, output.pid)
    end
  end

  def walk(session, pid, leak)
    call = { tool: "doctor", arguments: { pid: pid } }
    said = []
    while call && said.size < CALLS
      answer = session.ask(call[:tool], **call[:arguments])
      said << { text: answer.text, found: path_in(answer.text, leak) }
      break if said.last[:found]

      call = answer.hints[:next].first
    end
    said
  end

  # The paths, which may be wrapped, are those of the first two rows.
  def path_in(text, leak)
    rows = text[/where memory has accumulated\n(.*?)(?:\n\n|\n  \()/m, 1].to_s.split(/\n(?= *[\d.]+  )/).first(2)
    rows.map { |row| row.split.drop(1).join(" ")[/.*(?=, holding )/] || row.split.drop(1).join(" ") }
        .find { |path| leak.path === path } # rubocop:disable Style/CaseEquality
  end
end
