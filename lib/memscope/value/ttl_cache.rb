# frozen_string_literal: true

module Memscope
  # One value that is read again once it is too old. One thread reads at a time, and the threads that wait for it share
  # its value. A forked child discards the inherited value, which describes its parent.
  # @api private
  class TtlCache
    attr_reader :value

    # @param keep_errors [Boolean] whether an error is kept for as long as a value would be, and raised again
    # @param clock [#call] returns seconds
    def initialize(keep_errors: false, clock: Clock.method(:now))
      @keep_errors = keep_errors
      @clock = clock
      @mutex = Mutex.new
    end

    # @param ttl [Numeric, #call] how many seconds a value stays fresh, or a callable that computes this number from the
    #   seconds that reading the value took
    # @return [Object] the value, which is fresh or was read since this call began
    def fetch(ttl, &block)
      called = @clock.call
      @mutex.synchronize do
        read(&block) unless fresh?(called, ttl)
        raise @error if @error

        @value
      end
    end

    private

    def fresh?(called, ttl)
      return false unless @pid == Process.pid

      called < @read_at || @clock.call < @read_at + (ttl.respond_to?(:call) ? ttl.call(@took) : ttl)
    end

    def read(&)
      @pid = nil
      started = @clock.call
      @value, @error = outcome(&)
      @read_at = @clock.call
      @took = @read_at - started
      @pid = Process.pid
    end

    def outcome
      [yield, nil]
    rescue StandardError, ScriptError => e
      raise unless @keep_errors

      [nil, e]
    end
  end
end
