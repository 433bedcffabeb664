# frozen_string_literal: true

module Memscope
  module Launch
    # Memscope's part in the Ruby program that it has become: the life cycle that all modes share. `start` prepares,
    # before the program's script. `report` runs when the process that was started ends, and at intervals.
    #
    # The program loads this file before anything else of memscope, so it requires nothing.
    class Inside
      def self.of(mode, order)
        require_relative "inside/#{mode}"
        Launch.const_get("Program#{mode.capitalize}").new(order)
      end

      # @param order [Hash{Symbol => Object}] title; status, for a program that is not started; output, extension, and
      #   display: the program writes to the same terminal as memscope; the rest is for the mode
      def initialize(order)
        @order = order
        @pid = Process.pid
        @turn = Thread::Mutex.new
        @ended = false
        require_relative "../../value/forks"
        require_relative "../../value/words"
        @words = Words.beside(__FILE__) # now: at the end, the program may have no descriptor left, or another root
        @io = output
      end

      private

      # Call before the program registers its own at_exit handlers: the first one registered runs last.
      def report_at_exit
        at_exit do
          @exits = Process.pid == @pid
          finish if @exits
        end
      end

      def finish = report(ending: true)

      # Calls `write`, but not after the last report. An error here does not change how the program ends.
      def report(ending:)
        @turn.synchronize do
          next if @ended

          @ended = ending
          write(ending)
        end
      rescue StandardError, ScriptError, NoMemoryError => e
        complain(:no_report, why: "#{e.message} (#{e.class})")
      end

      # Leaves $LOAD_PATH as it was.
      #
      # @raise [LoadError] if the program is run by a Ruby that cannot load memscope's extension
      def load_memscope
        unless Memscope.respond_to?(:ledger)
          load_path = Handoff.load_path(@order[:extension])
          $LOAD_PATH.unshift(*load_path)
          require_relative "../../../memscope"
        end
        raise LoadError, Memscope.unsupported_reason unless Memscope.supported?
      ensure
        load_path&.each { |directory| $LOAD_PATH.delete_at($LOAD_PATH.index(directory)) }
      end

      # The file that memscope created, opened before the program can drop privileges, or else standard error.
      def output
        return $stderr unless @order[:output]

        flags = File::WRONLY | File::APPEND | File::NOFOLLOW
        File.new(@order[:output], flags, external_encoding: Encoding::UTF_8).tap { |file| file.sync = true }
      rescue SystemCallError => e
        complain(e.message)
        $stderr
      end

      # Adds to a page with commands for this process that it will not run then.
      def dated(page)
        @exits && page.include?("--pid #{@pid}") ? "#{page}\n  #{worded(:exits, pid: @pid)}\n" : page
      end

      def complain(message, **figures)
        message = worded(message, **figures) if message.is_a?(Symbol)
        $stderr.write("memscope #{@order[:title]}: #{message}\n") # warn is silent under -W0
        nil
      rescue StandardError
        nil
      end

      def worded(name, **figures) = @words.fill(name, figures)

      def give_up(why)
        complain(:not_started, why: why)
        File.unlink(@order[:output]) if @order[:output] && File.empty?(@order[:output])
        exit!(@order[:status])
      end

      # Runs a block in a thread. While the thread is in a timed sleep, Ruby does not detect deadlocks of the program's
      # threads.
      def background(name, &) = Forks.background("memscope #{name}", &)
    end
  end
end
