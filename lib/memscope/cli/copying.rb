# frozen_string_literal: true

module Memscope
  module CLI
    # Asks a Ruby process that does not listen by way of a copy of it (Copy), for commands that only read.
    module Copying
      private

      def ask(call, **options) = other? ? asking { answer(call, **options) } : super

      # The other process's answer or, if it does not listen, a copy's.
      def answer(call, **options)
        other.call(call, **options)
      rescue Client::Unreachable => e
        raise unless e.why == :silent && @copy.nil? && copies?

        Loading.whole { require_relative "../remote/copy" }
        @other = @copy = Copy.new(@given[:pid], extension: @given[:so], long_pause: @given.key?(:pause))
        retry
      end

      def copies? = @given.key?(:pid) && !@given.key?(:no_attach) && Client.ruby?(@given[:pid])

      # Ends the copy, which has answered, and shows its price.
      def footer
        return unless @copy

        @copy.close
        "  #{@copy}\n"
      end
    end
  end
end
