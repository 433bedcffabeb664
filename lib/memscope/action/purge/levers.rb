# frozen_string_literal: true

require_relative "../../value/reading"

module Memscope
  module Purge
    autoload :Compaction, File.join(__dir__, "compaction.rb")

    # Every lever, in order.
    LEVERS = %i[gc compact tcache decay purge trim collect].freeze

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

    # What can be run here, one purge at a time. Purge has these methods.
    #
    # @api private
    module Levers
      # @return [Hash{Symbol => String, nil}] for each lever, why this process cannot run it; nil if it can
      def missing = { gc: nil, compact: Compaction.missing, **Reasons.sentences(Native.levers) }

      # @return [Symbol, nil] the lever that returns all unused memory of this process's allocator; nil if none does
      def allocators_lever
        missing = Native.levers
        %i[purge trim collect].find { |lever| missing[lever].nil? }
      end

      # @yield while no other thread of this process purges or tunes
      # @raise [Busy]
      def with_exclusive_purge
        result = nil
        return result if Native.with_exclusive_purge { result = yield }

        raise Busy, "another thread of this process is purging or tuning; try again when it has finished"
      end
    end
    private_constant :Levers
  end
end
