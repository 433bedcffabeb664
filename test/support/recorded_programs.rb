# frozen_string_literal: true

require_relative "launching"

# Programs that run as they are and recorded.
module RecordedPrograms
  include Launching

  FILES = {
    "plain.rb" => "PLAIN = caller.reject { |line| line.include?('<internal:') }",
    "nested.rb" => "require_relative 'plain'; require 'plain'; NESTED = __dir__",
    "raises.rb" => "require 'plain'; raise ArgumentError, 'no'",
    "lacking.rb" => "require 'nowhere/at/all'",
    "circle.rb" => "CIRCLE = require 'circle'",
    "wrong.rb" => "def (",
    "wrapped.rb" => "WRAPPED = 1; $wrapped = Module.nesting.size",
    "late.rb" => "module Late; HERE = 1; end",
    "exits.rb" => "exit 5",
    "deep/inner.rb" => "DEEP = require_relative('../plain')"
  }.freeze

  def setup
    super
    FILES.each do |name, text|
      FileUtils.mkdir_p(File.dirname(path(name)))
      File.write(path(name), text)
    end
  end

  def programs(script) = [RbConfig.ruby, "-I#{directory}", make("main.rb", script)]

  # Runs a program as it is and recorded. Both must print the same and end alike.
  def assert_alike(script, status: 0)
    alone = ChildProcess.run_command(*programs(script))
    recorded = launch("requires", "--json", "--", *programs(script))

    assert_equal status, alone.status.exitstatus, alone.to_s
    assert_equal [alone.out, status], [recorded.out, recorded.status.exitstatus], recorded.to_s
    recorded.err.empty? || status.positive? ? nil : Memscope::Requires.from_json(recorded.err.lines.last)
  end

  def files(reading) = reading.nodes.drop(1).select { |node| node.path.start_with?(directory) }
end
