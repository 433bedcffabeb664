# frozen_string_literal: true

Memscope::Loading.units :History, :Verdict

module Memscope
  class History < Reading
    # Samples another process, which keeps no history, into the history of this process, which keeps none of itself.
    # @api private
    class Outside < Sampler
      # @yieldreturn [Reading] of the other process
      def initialize(&ask)
        super()
        @ask = ask
        @tasks.reject! { |task| task.kind == :held } # it would walk all objects
        Native.open_history
      end

      # @return [Float] seconds since the machine booted
      def now = Sampler.now

      # @return [Verdict] in the envelope of the other process
      def verdict = Verdict.of(self, cgroup: @ask.call(:cgroup, {}), envelope: @snapshot.envelope)

      private

      # The caller gets the reason why the other process cannot be read.
      def failed(error) = raise(error)

      def attempt(kind) = send(kind)

      # `verdict` judges all samples on request instead.
      def judge(_epoch) = nil

      def totals = of_snapshot(@snapshot = @ask.call(:snapshot, {}))

      def rows(ledger = @ask.call(:ledger, {})) = super

      def sizes = super(@ask.call(:process_memory, {}))

      def walk = super(@ask.call(:ledger, { deep: true }))
    end
  end
end
