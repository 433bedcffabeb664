# frozen_string_literal: true

module Memscope
  module CLI
    # What commands do with --pid N and --socket PATH: they ask that process, which listens.
    module OtherProcess
      private

      def declare_pid(parser)
        parser.on("--pid N", Integer, "of process N, which listens (MEMSCOPE_LISTEN=1)") { |pid| @pid = pid }
        parser.on("--socket PATH", "of the one that listens at PATH (Memscope.listen(path:))") { |path| @socket = path }
      end

      # @return [Boolean] whether it is about another process
      def other? = !(@pid || @socket).nil?

      # @return [Client]
      def other = @other ||= asking { client }

      def client
        refuse("--pid and --socket exclude each other") if @pid && @socket

        @socket ? Client.at(@socket) : Client.new(@pid)
      end

      # Runs a block that asks it.
      #
      # @raise [Failure]
      def asking
        yield
      rescue ArgumentError => e
        raise Failure.new(e.message.sub(/\A(Memscope\.)?#{self.class.title}: /, ""), Command::USAGE)
      rescue Client::Unreachable, Client::Failed, Purge::Busy => e
        raise Failure.new(e.message, Command::INPUT_OUTPUT)
      end
    end
  end
end
