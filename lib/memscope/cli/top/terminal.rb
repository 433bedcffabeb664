# frozen_string_literal: true

module Memscope
  module CLI
    module Top
      # A terminal to draw on, restored afterwards whatever happens.
      class Terminal
        # Shows the alternate screen, hides the cursor, and turns off line wrap: only the terminal knows how wide
        # characters are.
        ENTER = "\e[?1049h\e[?25l\e[?7l"
        LEAVE = "\e[?7h\e[?25h\e[?1049l"
        # Columns and lines to assume of a terminal that does not report its size.
        USUAL = [80, 24].freeze

        # @return [Thread::Queue] keys, :resized, :closed if the terminal is gone, and events that others add
        attr_reader :events

        def initialize(input, output)
          @input = input
          @output = output
          @events = Thread::Queue.new
        end

        # @return [Integer] the exit status, as the block returns it
        def open
          trap(:WINCH) { @events << :resized }
          @input.raw do
            keys = Forks.background("memscope keys") { listen }
            @output.write(ENTER)
            yield self
          ensure
            keys&.kill
            @output.write(LEAVE)
          end
        rescue Errno::EIO, IOError
          Command::FINE # the terminal is gone
        end

        def size
          lines, columns = @output.winsize
          lines.positive? && columns.positive? ? [columns, lines] : USUAL
        rescue SystemCallError
          USUAL
        end

        def draw(lines)
          # Erases before writing a line, not after: after a full line, the cursor is still on the line's last
          # character, which would be erased too.
          @output.write("\e[H", lines.map { |line| "\e[J#{line}" }.join("\r\n"))
          @output.flush
        end

        # Returns the terminal to the shell, as Ctrl-Z does, until the shell continues the process.
        def suspend
          @output.write(LEAVE)
          @input.cooked { Process.kill(:STOP, Process.pid) }
          @output.write(ENTER)
        end

        private

        def listen
          loop { @events << @input.readchar }
        rescue IOError, SystemCallError
          @events << :closed
        end
      end
    end
  end
end
