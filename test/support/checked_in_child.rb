# frozen_string_literal: true

# Checks of blocks in child processes.
module CheckedInChild
  REQUIRES = %w[json memscope memscope_test].freeze
  # For tests of which only the judgement matters.
  QUICK = "iterations: 20, runs: 2, warmup: 20"

  # @return [Memscope::Check] of a block in a child
  def ran(start, block, options = "", setup: "")
    Memscope::Check.from_h(child_json(<<~RUBY, requires: REQUIRES))
      #{setup}
      #{start}
      puts Memscope::Check.run(#{options}) #{block}.to_json
    RUBY
  end
end
