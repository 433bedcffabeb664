# frozen_string_literal: true

%w[source terminal view].each { |part| require_relative "top/#{part}" }

module Memscope
  module CLI
    # `memscope top`: the rows of a process's ledger as they change, or all Ruby processes.
    class TopCommand < Command
      # The exit status that a shell reports after Ctrl-C.
      INTERRUPTED = 130
      # The largest share of time that readings may take.
      MAX_TIME_SHARE = 0.1

      declare defaults: { every: 2.0 }

      private

      def perform
        source = other? ? Top::OneProcess.new(other) : Top::AllProcesses.new
        usage_error(:needs_terminal) unless [$stdin, @out].all?(&:tty?)

        Top::Terminal.new($stdin, @out).open { |terminal| watch(terminal, source) }
      rescue Interrupt
        INTERRUPTED
      end

      def watch(terminal, source)
        view = Top::View.new(unicode: display.unicode)
        reader = Forks.background("memscope top") { read(source) { |frame| terminal.events << frame } }
        reader.report_on_exception = false
        loop do
          terminal.draw(view.lines(*terminal.size))
          case event = terminal.events.pop
          when Hash then view.add(event)
          when "q", :closed then return FINE
          when "\x03" then return INTERRUPTED
          when "\x1a" then terminal.suspend
          end
        end
      ensure
        reader&.kill&.join
      end

      # Runs in a thread of its own, so that top answers keys even if the other process hangs.
      def read(source)
        frame = {}
        until frame[:over]
          started = Clock.now
          yield frame = reading(source)
          sleep([@given[:every], (Clock.now - started) / MAX_TIME_SHARE].max)
        end
      end

      # An error is shown until a reading succeeds.
      def reading(source)
        source.read
      rescue Client::Unreachable, Client::Failed, SystemCallError => e
        { note: e.message }
      end
    end
  end
end
