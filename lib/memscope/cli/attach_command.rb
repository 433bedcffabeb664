# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope attach --pid N`: makes a process listen that has not loaded memscope.
    class AttachCommand < Command
      declare exclusive: [%i[close check actions], %i[check actions]]

      private

      def perform
        usage_error(:without_pid) unless @given.key?(:pid)
        Loading.whole { require_relative "../remote/attachment" }
        Command.write(@out, "#{asking { answer }}\n")
      end

      def answer
        attachment = Attachment.new(@given[:pid])
        return attachment.check if @given[:check]

        @given[:close] ? attachment.close : attachment.open(actions: @given.key?(:actions))
      end
    end
  end
end
