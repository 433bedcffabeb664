# frozen_string_literal: true

require_relative "../setup/facade"

module Memscope
  # Starts another program: `memscope exec`, `memscope report -- COMMAND` and others prepare the environment, and become
  # the program; what is left to do, such as the proof of its allocator, is done inside. No memscope process remains.
  #
  # @api private
  module Launch
    # Why a program cannot start as requested; the message is the reason.
    class Refusal < StandardError; end
  end
end

require_relative "launch/environment"
require_relative "launch/handoff"
require_relative "launch/program"
