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
    autoload :Compaction, File.join(__dir__, "purge", "compaction.rb")

    # Every lever, in order.
    LEVERS = %i[gc compact tcache decay purge trim collect].freeze

    # The levers that can run for one arena alone.
    OF_ONE_ARENA = %i[decay purge].freeze

    # The levers that hold the GVL, and how many times as long as one full GC each takes: a Process.warmup also
    # compacts, and a compaction has several passes. Measured: see benchmark/purge.rb and Compaction.
    FULL_GCS = { gc: 1, compact: Process.respond_to?(:warmup) ? 4 : 10 }.freeze
    # The levers that hold the GVL.
    HOLDING_GVL = FULL_GCS.keys.freeze

    # The longest predicted stop of Ruby, in milliseconds, by a lever that was not named.
    LONGEST_PAUSE_MS = 200
    private_constant :FULL_GCS

    # Another thread of this process is purging or tuning. Only one thread can do so at a time; others fail at once
    # rather than wait. A child forked meanwhile can purge.
    class Busy < StandardError; end

    class << self
      # Implements Memscope.purge.
      #
      # @api private
      def run(levers, arena: nil, **options)
        check_arena("Memscope.purge", arena)
        Run.new(levers, missing, arena: arena, **options).result(method(:with_exclusive_purge))
      end

      # Predicts what each lever would return by itself, from readings already taken.
      #
      # @api private
      # @param evidence [Diagnosis::Evidence] of this process
      # @return [Result] of a dry run
      def forecast(evidence) = Run.new([], missing, dry_run: true).forecast(evidence)

      # @api private
      # @return [Hash{Symbol => String, nil}] for each lever, why this process cannot run it; nil if it can
      def missing = { gc: nil, compact: Compaction.missing, **Reasons.sentences(Native.levers) }

      # Predicts how much the lever `allocators_lever` (:purge, :trim or :collect) returns. Tier T1.
      #
      # @api private
      # @param ledger [Ledger]
      # @return [Integer, nil] the least that the lever returns, without the pages that other processes share, if these
      #   pages are known; nil if the ledger does not say (for :trim, the ledger must be deep)
      def least_bytes(ledger)
        lever = allocators_lever or return

        forecast = Forecast.of(lever, nil, ledger, collect: false)
        (forecast.private_bytes || forecast.bytes)&.begin
      end

      # @api private
      # @return [Symbol, nil] the lever that returns all unused memory of this process's allocator
      def allocators_lever
        missing = Native.levers
        %i[purge trim collect].find { |lever| missing[lever].nil? }
      end

      # @api private
      # @yield while no other thread of this process purges or tunes
      # @raise [Busy]
      def with_exclusive_purge
        result = nil
        return result if Native.with_exclusive_purge { result = yield }

        raise Busy, "another thread of this process is purging or tuning; try again when it has finished"
      end

      # @api private
      # @param call [String] the call that the message names
      # @param arena [Integer, nil]
      # @raise [ArgumentError] unless `arena` is nil or the index of one of jemalloc's arenas
      def check_arena(call, arena)
        limit = Native.arena_limit
        return if arena.nil? || (limit && arena.is_a?(Integer) && arena.between?(0, limit - 1))

        allowed = limit ? "nil, an Integer from 0 to #{limit - 1}" : "nil; arenas can be told apart under jemalloc only"
        Field.refuse(:arena, arena, allowed, call: call)
      end
    end
  end
end
