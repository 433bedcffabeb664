# frozen_string_literal: true

require_relative "hand_over"

module Memscope
  module Launch
    # What reports in a program that memscope has become needs there: memscope itself, a place to write to, and threads.
    # Whoever includes it has @order, from HandOver, and @title, the command's name.
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

      # A thread that sleeps is no trouble to a program that forks, and Puma asks for this mark. While there is one that
      # will wake up, Ruby does not raise where all of the program's own threads wait for each other.
      def background(&) = Thread.new(&).tap { |thread| thread.thread_variable_set(:fork_safe, true) }

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
