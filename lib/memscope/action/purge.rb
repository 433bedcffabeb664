# frozen_string_literal: true

require_relative "purge/run"

module Memscope
  # Returns memory to the kernel and measures how much, for Memscope.purge.
  #
  # A purge that names no levers runs those of the allocator. It runs :gc and :compact only if they are predicted to
  # stop Ruby for no more than LONGEST_PAUSE_MS each, and if no other process shares pages of Ruby's heap. The result
  # says which levers were left out, and why.
  #
  # The levers, in the order in which they run, so that each leaves more for the later levers to return:
  #
  # - :gc, one full GC. Holds the GVL.
  # - :compact, the passes of Compaction, which free pages of Ruby's heap. Holds the GVL, several times longer than :gc.
  #   Refused on Ruby 3.1.0 to 3.1.3 and 3.2.0, where GC.compact can crash.
  # - :tcache (jemalloc): flushes the cache of the calling thread only.
  # - :decay (jemalloc): returns the unused pages whose decay time has passed. A page's decay time starts when jemalloc
  #   first looks at the page: when a thread allocates or frees in the page's arena, or runs this lever.
  # - :purge (jemalloc): returns all unused pages.
  # - :trim (glibc): malloc_trim(0), which returns whole pages inside free chunks.
  # - :collect: calls mi_collect(true) for the calling thread's heap (mimalloc), or returns the free spans (tcmalloc).
  #
  # The allocator's levers run without the GVL: other Ruby threads wait for the allocator's locks only.
  module Purge
    extend Levers

    class << self
      # Implements Memscope.purge.
      #
      # @api private
      def run(levers, **options) = Run.new(levers, **options).result

      # Predicts what each lever would return by itself, from readings already taken.
      #
      # @api private
      # @param evidence [Diagnosis::Evidence] of this process
      # @return [Result] of a dry run
      def forecast(evidence) = Run.new([], dry_run: true).forecast(evidence)

      # Predicts how much the lever `allocators_lever` (:purge, :trim or :collect) returns. Tier T1.
      #
      # @api private
      # @param ledger [Ledger]
      # @return [Integer, nil] the least that the lever returns, without the pages that other processes share, if these
      #   pages are known; nil if the ledger does not say (for :trim, the ledger must be deep)
      def least_bytes(ledger)
        lever = allocators_lever or return

        forecast = Forecast.of(lever, ledger, collect: false)
        (forecast.private_bytes || forecast.bytes)&.begin
      end
    end
  end
end
