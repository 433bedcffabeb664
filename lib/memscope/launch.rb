# frozen_string_literal: true

require_relative "facade"

module Memscope
  # Starts another program: what `memscope exec` and `memscope report -- COMMAND` check and prepare before their process
  # becomes the program. No memscope process remains.
  #
  # @api private
  module Launch
    # Why a program cannot start as requested; the message is the reason.
    class Refusal < StandardError; end

    # An invalid setting.
    class Misuse < ArgumentError; end
  end
end

require_relative "launch/environment"
require_relative "launch/handoff"
require_relative "launch/program"
require_relative "launch/proof"
