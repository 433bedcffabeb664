# frozen_string_literal: true

require_relative "../metrics"

module Memscope
  module Metrics
    # Families for exporters that ask metric by metric: all that is asked in one round comes from one collection, so
    # that rows sum. What is asked for a second time begins the next round.
    #
    # @api private
    class Round
      # @param worker [String, Integer, false, nil] as for Metrics.families
      def initialize(worker: nil)
        @worker = worker
        @mutex = Mutex.new
      end

      # @param key [Object] what is asked for: the same in each round
      # @yieldparam families [Hash{String => Family}] by name
      # @return [Object] the block's value
      def ask(key)
        families = @mutex.synchronize do
          start unless @pid == Process.pid && !@asked.include?(key)
          @asked[key] = true
          @families
        end
        yield families
      end

      private

      def start
        @families = Metrics.families(worker: @worker).to_h { |family| [family.name, family] }.freeze
        @asked = {}
        @pid = Process.pid
      end
    end
  end
end
