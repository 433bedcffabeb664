# frozen_string_literal: true

require_relative "../value/loading"
Memscope::Loading.unit :Purge

module Memscope
  # jemalloc's decay times and background threads, before and after a call of Memscope.tune.
  #
  #   tuning = Memscope.tune(dirty_decay_ms: 1_000)
  #   tuning[0].old_dirty_decay_ms  # => 10000
  #   tuning[0].dirty_decay_ms      # => 1000
  class Tuning < Reading
    # The decay times of one arena: milliseconds until unused pages are purged; 0: at once; -1: never.
    class Decay < Record
      # @return [Integer, nil] index of the arena; nil for the arenas that are created later
      field :index, :count
      # @return [Integer, nil]
      field :old_dirty_decay_ms, :integer
      # @return [Integer, nil]
      field :dirty_decay_ms, :integer
      # @return [Integer, nil]
      field :old_muzzy_decay_ms, :integer
      # @return [Integer, nil]
      field :muzzy_decay_ms, :integer

      # @return [Integer, nil] its index
      def id = index
    end

    include Lookup

    # @return [Symbol] the allocator that serves malloc
    field :allocator, :symbol, null: false
    # @return [Array<Decay>] the arenas in use, by index
    field :arenas, [Decay], null: false
    parts_of :arenas
    # @return [Decay, nil] the decay times that new arenas begin with
    field :new_arena_defaults, Decay
    # @return [Boolean, nil]
    field :old_background_thread?, :boolean
    # @return [Boolean, nil] whether jemalloc purges in threads of its own; nil if it cannot
    field :background_thread?, :boolean

    class << self
      # Implements Memscope.tune.
      #
      # @api private
      def apply(dirty_decay_ms: nil, muzzy_decay_ms: nil, background_thread: nil)
        given = { dirty_decay_ms: dirty_decay_ms, muzzy_decay_ms: muzzy_decay_ms, background_thread: background_thread }
        set = given.compact
        set.each do |name, value|
          allowed = allowed(name, value)
          Field.refuse(name, value, "nil#{allowed}", call: "Memscope.tune") if allowed
        end
        tune = -> { Native.tune(*given.values) }
        capture(set.empty? ? tune.call : Purge.with_exclusive_purge(&tune))
      end

      private

      # What is allowed besides nil; nil if the value is.
      def allowed(name, value)
        return "; only jemalloc can be tuned while it runs" unless Native.allocator[:name] == :jemalloc
        return decay_allowed(value) unless name == :background_thread
        return ", true, false" unless [true, false].include?(value)

        missing = Native.tune(nil, nil, nil)[:old_background_thread].nil?
        "; this jemalloc was built without background threads" if missing
      end

      def decay_allowed(milliseconds)
        most = Native::MAX_DECAY_MS
        return if milliseconds.is_a?(Integer) && milliseconds.between?(-1, most)

        ", an Integer from -1 (never) to #{most}, in milliseconds"
      end
    end
  end
end
