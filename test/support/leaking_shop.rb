# frozen_string_literal: true

require_relative "command_line"
require_relative "listening"

# memscope heap, of processes in which a constant holds objects.
module LeakingShop
  include CommandLine
  include Listening

  LEAK = "class Leaked; def initialize = @text = +'x' * 300; end
          module Shop; KEPT = Array.new(9_000) { Leaked.new }; end"

  # What memscope heap prints.
  def memscope(...) = printed_by("heap", ...)
end
