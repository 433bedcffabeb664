# frozen_string_literal: true

require_relative "top/source"
require_relative "top/terminal"
require_relative "top/view"

module Memscope
  module CLI
    # `memscope top`: the rows of a process's ledger as they change, or all Ruby processes.
    class TopCommand < Command
      NOTES = <<~TEXT
        q quits. For a process that does not listen, top shows only the kernel's view.
      TEXT
      # The exit status that a shell reports after Ctrl-C.
      INTERRUPTED = 130
      private_constant :NOTES, :INTERRUPTED

      declare "watch the memory of a process, or of all Ruby processes", "memscope top --pid 4711",
              options: [*PROCESS, ["--every SECONDS", Float, SECONDS, "seconds between readings"]],
              notes: NOTES, defaults: { every: 2.0 }

      private

      def perform
        source = other? ? Top::OneProcess.new(other) : Top::AllProcesses.new
        terminal = Top::Terminal.new($stdin, @out)
        usage_error("needs a terminal; instead, use memscope ps, or memscope report --pid N") unless terminal.there?

        terminal.open { watch(terminal, source) }
      rescue Interrupt
        INTERRUPTED
      end

      def watch(terminal, source)
        view = Top::View.new(unicode: display.unicode)
        reader = Top::Reader.new(source, @given[:every]) { terminal.ring }
        loop do
          terminal.draw(view.lines(reader.frame, *terminal.size))
          case terminal.key
          when "q", :closed then return FINE
          when "\x03" then return INTERRUPTED
          when "\x1a" then terminal.suspend
          end
        end
      ensure
        reader&.stop
      end
    end
  end
end
