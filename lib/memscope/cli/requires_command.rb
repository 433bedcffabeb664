# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope requires -- COMMAND`: the cost of each file and gem that a Ruby program loads.
    class RequiresCommand < Command
      declare defaults: { top: 20 }

      private

      def start = hand_over("requires", json: @given[:json], view: { limit: @given[:top] })
    end
  end
end
