# frozen_string_literal: true

require_relative "hand_over"

module Memscope
  module Launch
    # What reports in a program that memscope has become needs there: memscope itself, and a place to write to. Whoever
    # includes it has @order, from HandOver, and @title, the command's name.
    module InProgram
      private

      def load_memscope
        return if Memscope.respond_to?(:ledger)

        load_path = HandOver.load_path(@order)
        $LOAD_PATH.unshift(*load_path)
        require_relative "../../memscope"
      ensure
        load_path&.each { |directory| $LOAD_PATH.delete_at($LOAD_PATH.index(directory)) }
      end

      # memscope made the file, for its owner only; it is opened now, while the program has the rights that it was
      # started with.
      def destination
        return $stderr unless @order["output"]

        flags = File::WRONLY | File::APPEND | File::NOFOLLOW
        File.new(@order["output"], flags, external_encoding: Encoding::UTF_8).tap { |file| file.sync = true }
      rescue SystemCallError => e
        complain(e.message)
        $stderr
      end

      def complain(message)
        $stderr.write("memscope #{@title}: #{message}\n") # warn is silent under -W0
      rescue StandardError
        nil
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
