# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope requires -- COMMAND`: what each file and gem that a Ruby program loads costs.
    class RequiresCommand < Command
      NOTES = <<~TEXT
        The report goes to standard error, or to FILE, when COMMAND ends, unless it is
        killed or calls exit!. Load order matters: memory that is in use at the end is
        charged to the innermost file that was being loaded when it was allocated. Only
        the started process is measured, even past exec. The exit status is COMMAND's
        own.
      TEXT
      private_constant :NOTES

      declare "print what each gem and file that a Ruby program loads costs",
              "memscope requires -- bundle exec rails runner \"\"",
              options: [TOP, *TEXT], program: [], process: nil, notes: NOTES, defaults: { top: 20 }

      private

      def start
        hand_over("requires", json: @given[:json], view: { limit: @given[:top] })
      end
    end
  end
end
