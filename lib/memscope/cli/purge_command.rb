# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope purge [LEVER...]`: returns memory of a process that listens, or of the memscope process itself.
    class PurgeCommand < Command
      NOTES = <<~TEXT.freeze
        A lever is one way to return memory. The levers run in this order:
        #{Purge::LEVERS.join(', ')}.
        tcache, decay and purge are for jemalloc, trim for glibc, collect for mimalloc
        and tcmalloc. gc and compact stop all Ruby threads; in a forked worker, both
        make shared memory private, which costs the machine memory. Without levers,
        those of the allocator run; gc and compact only if they are predicted to stop
        Ruby for at most #{Purge::LONGEST_PAUSE_MS} ms and share no memory with others.
      TEXT
      private_constant :NOTES

      declare "return unused memory to the kernel, and print how much", "memscope purge --pid 4711 gc trim",
              options: [*PROCESS, ["--dry-run", "predict only, and change nothing"],
                        ["--gc", "for --dry-run: collect garbage first"], *TEXT],
              operands: "[LEVER...]", most: Purge::LEVERS.size, notes: NOTES

      private

      def perform
        options = @given.slice(:dry_run, :gc)
        levers = @operands.map(&:to_sym)
        result = asking { other? ? other.call(:purge, levers: levers, **options) : Memscope.purge(*levers, **options) }
        note_own
        deliver_readings([result])
        result.before.rss_bytes ? FINE : INPUT_OUTPUT
      end
    end
  end
end
