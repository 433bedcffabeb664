# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope purge [LEVER...]`: returns memory of a process that listens, or of the memscope process itself.
    class PurgeCommand < Command
      NOTES = <<~TEXT.freeze
        A lever is one way to return memory. The levers run in this order:
        #{Purge::LEVERS.join(', ')}.
        tcache, decay and purge are for jemalloc, trim for glibc, collect for mimalloc
        and tcmalloc. gc and compact stop all Ruby threads, compact several times
        longer; in a forked worker, both make shared memory private, which costs the
        machine memory. Without levers, those of the allocator run; gc and compact only
        if they are predicted to stop Ruby for at most #{Purge::LONGEST_PAUSE_MS} ms and share no memory
        with other processes. --dry-run predicts all levers. Without --pid or --socket,
        memscope's own process is purged.
      TEXT
      ARENA = Limit.new(nil, "the number of an arena, as `memscope report --arenas` lists them").freeze
      FORMS = {
        process: { summary: "return unused memory to the kernel, and print how much",
                   example: "memscope purge --pid 4711 gc trim", notes: NOTES,
                   options: [*PROCESS, ["--dry-run", "predict only, and change nothing"],
                             ["--gc", "for --dry-run: collect garbage first"],
                             ["--arena N", OptionParser::DecimalInteger, ARENA,
                              "decay or purge this jemalloc arena only"],
                             ["--settle S", Float, Limit.of(0..Purge::LONGEST_SETTLE, "a number of seconds"),
                              "measure again after S seconds"], *TEXT] }
      }.freeze
      private_constant :FORMS, :NOTES, :ARENA

      private

      def operands = "[LEVER...]"

      def take(operands)
        @levers = operands.map(&:to_sym)
      end

      def perform
        result = asking { other? ? of_other(**options) : own }
        deliver_readings([result])
        result.before.rss_bytes ? FINE : INPUT_OUTPUT
      end

      def options = @given.slice(:dry_run, :arena, :settle, :gc)

      # Settles in this process: if the other one waited, so would all its clients.
      def of_other(settle: 0, **options)
        result = other.call(:purge, levers: @levers, **options)
        return result if result.dry_run? || settle.zero?

        sleep(settle)
        Purge::Result.from_h({ **result.to_h, settle_seconds: settle, settled: other.call(:ledger).to_h })
      end

      def own
        result = Memscope.purge(*@levers, **options)
        say("this is the memscope process itself; for another one: memscope purge --pid N")
        result
      end
    end
  end
end
