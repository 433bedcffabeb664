# frozen_string_literal: true

Memscope::Loading.unit :Purge

module Memscope
  Record.declare(__FILE__)

  # jemalloc's decay times and background threads, before and after a call of Memscope.tune.
  #
  #   tuning = Memscope.tune(dirty_decay_ms: 1_000)
  #   tuning[0].old_dirty_decay_ms  # => 10000
  #   tuning[0].dirty_decay_ms      # => 1000
  class Tuning < Reading
    # The decay times of one arena: after how many milliseconds unused pages are purged; -1 is never.
    class Decay < Record
      # @return [Integer, nil] its index
      def id = index
    end

    include Lookup

    # @api private
    def self.apply(dirty_decay_ms: nil, muzzy_decay_ms: nil, background_thread: nil)
      given = { dirty_decay_ms: dirty_decay_ms, muzzy_decay_ms: muzzy_decay_ms, background_thread: background_thread }
      set = given.compact
      set.each do |name, value|
        allowed = allowed(name, value)
        Field.refuse(name, value, "nil#{allowed}", call: "Memscope.tune") if allowed
      end
      tune = -> { Native.tune(*given.values) }
      capture(set.empty? ? tune.call : Purge.with_exclusive_purge(&tune))
    end

    # The other allowed values, if this value is not allowed.
    def self.allowed(name, value)
      return "; only jemalloc can be tuned while it runs" unless Native.allocator[:name] == :jemalloc

      if name != :background_thread
        fits = value.is_a?(Integer) && value.between?(-1, Native::MAX_DECAY_MS)
        ", an Integer from -1 (never) to #{Native::MAX_DECAY_MS}, in milliseconds" unless fits
      elsif ![true, false].include?(value)
        ", true, false"
      elsif Native.tune(nil, nil, nil)[:old_background_thread].nil?
        "; this jemalloc was built without background threads"
      end
    end
    private_class_method :allowed
  end
end
