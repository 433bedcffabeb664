# frozen_string_literal: true

require_relative "facade"

module Memscope
  # Starting another program: what `memscope exec` and `memscope report -- COMMAND` find out and prepare before they
  # become it. Nothing of memscope stays behind as a process of its own.
  #
  # @api private
  module Launch
    # Why a program cannot be started in the way asked for; the message is the reason.
    class Refusal < StandardError; end

    # A setting that is none.
    class Misuse < ArgumentError; end
  end
end

require_relative "launch/allocator_choice"
require_relative "launch/dynamic_linker"
require_relative "launch/environment"
require_relative "launch/hand_over"
require_relative "launch/probe"
require_relative "launch/program"
