# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope watch`: judges from its history whether the memory of a process is growing.
    class WatchCommand < Command
      # The exit status for a leak.
      LEAK = 1
      # Of so many samples of a process that is read from here, one is told.
      EACH = 6

      private

      def perform
        require_other
        status = show
        while @given[:every]
          sleep(@given[:every])
          status = show
        end
        status
      rescue Interrupt
        status
      end

      def show
        verdict = ask(:verdict)
        return tell(observed, History.read) if verdict.reasons.key?(:running) && observes?

        tell(verdict, (ask(:history) unless @given[:json]))
      end

      def observes? = !@given[:json] && !@given[:every]

      # How the last release of the process's service differs from the one before it, by their black boxes.
      def footer
        sentence = Loading.unit(:Lives, Boxes).of(@verdict)&.sentence
        "\n#{Report::Page.new(**display.to_h).wrapped(sentence)}\n" if sentence
      end

      def tell(verdict, history)
        @verdict = verdict
        deliver_readings([verdict], **(history&.known? ? { history: history } : {}))
        verdict.leak? ? LEAK : FINE
      end

      # The verdict on a process that keeps no history: as soon as there is one, or when somebody ends this.
      def observed
        Loading.whole { require_relative "../judge/history/outside" }
        outside = History::Outside.new { |call, options| ask(call, **options) }
        say(:no_history)
        until (verdict = outside.tap(&:step).verdict).kind != :too_early
          say(verdict.sentence) if (turn = turn.to_i + 1) % EACH == 1
          sleep(History::Sampler::SECONDS)
        end
        verdict
      rescue Interrupt
        verdict || raise
      end
    end
  end
end
