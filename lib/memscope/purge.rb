# frozen_string_literal: true

require_relative "ledger"
require_relative "ruby_heap"
require_relative "purge/run"

module Memscope
  # Giving memory back to the kernel, and saying how much that was. What Memscope.purge is made of.
  #
  # The levers, in the order in which they are pulled, for each leaves more to those behind it:
  #
  # - :gc, one full GC. Holds the GVL.
  # - :compact, the passes of Compaction, which free pages of Ruby's heap. Holds the GVL, for a second or more a GB.
  # - :tcache (jemalloc): flushes the cache of the thread that calls. Other threads' caches are their own.
  # - :decay (jemalloc): returns the unused pages whose decay time is over, counted from when jemalloc first looks at
  #   them: when somebody allocates or frees in their arena, or pulls this lever.
  # - :purge (jemalloc): returns all unused pages.
  # - :trim (glibc): malloc_trim(0), whole pages inside of free chunks.
  # - :collect (mimalloc, tcmalloc): mi_collect(true) of the calling thread's heap; tcmalloc's free spans.
  #
  # The allocator's levers run without the GVL: other Ruby threads go on, and wait for the allocator's locks only.
  module Purge
    autoload :Compaction, File.join(__dir__, "purge", "compaction.rb")

    # Every lever, in order.
    LEVERS = %i[gc compact tcache decay purge trim collect].freeze

    # The most seconds after which it is looked whether it stayed down: a day. Nobody waits longer on purpose.
    LONGEST_SETTLE = 86_400

    # Those that can be pulled for one arena.
    OF_ONE_ARENA = %i[decay purge].freeze

    # Those that hold the GVL.
    HOLDING_GVL = %i[gc compact].freeze

    # Another thread of this process purges or tunes: only one does at a time, and the others are told at once rather
    # than kept waiting, for what they want is being done. A child forked meanwhile is free to purge.
    class Busy < StandardError
      def initialize(message = "another thread of this process is purging or tuning; try again when it has finished")
        super
      end
    end

    class << self
      # Does what Memscope.purge says.
      #
      # @api private
      def run(levers, **options) = Run.new(Plan.new(levers, **options)).result

      # @api private
      # @return [Hash{Symbol => String, nil}] for each lever why this process has not got it; nil where it has
      def missing
        { gc: nil, compact: Compaction.missing, **Native.levers }
      end

      # @api private
      # @yield while no other thread of this process purges or tunes
      # @raise [Busy]
      def with_exclusive_purge
        result = nil
        raise Busy unless Native.fly { result = yield }

        result
      end

      # @api private
      # @param call [String] for the message
      # @param arena [Integer, nil]
      # @raise [ArgumentError] unless it is nil or the index of one of jemalloc's arenas
      def check_arena(call, arena)
        limit = Native.arena_limit
        return if arena.nil? || (limit && arena.is_a?(Integer) && arena.between?(0, limit - 1))

        allowed = limit ? "nil, an Integer from 0 to #{limit - 1}" : "nil; arenas can be told apart under jemalloc only"
        raise ArgumentError, "#{call}: arena: given #{arena.inspect}, allowed: #{allowed}"
      end
    end
  end
end
