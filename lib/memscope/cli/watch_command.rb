# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope watch`: whether the memory of a process grows, by its history.
    class WatchCommand < Command
      NOTES = <<~TEXT
        The process must keep its history. Puma's plugin, Workers.watch and Rails
        start it; without them, set MEMSCOPE_HISTORY=1. The first verdict takes an hour
        or more, and growth is called a leak once it has lasted for two. Until then,
        the answer says how much longer it needs. There is a new verdict every five
        minutes.

        exit status: 0 no leak, or too early to tell; 1 a leak
      TEXT
      # The exit status for a leak.
      LEAK = 1
      private_constant :NOTES, :LEAK

      declare "tell whether the memory of a process grows, where, how fast", "memscope watch --pid 4711",
              options: [*PROCESS, *TEXT, ["--every SECONDS", Float, SECONDS, "repeat, until the process ends"]],
              notes: NOTES

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
        history = ask(:history) unless @given[:json]
        deliver_readings([verdict], **(history&.known? ? { history: history } : {}))
        verdict.leak? ? LEAK : FINE
      end
    end
  end
end
