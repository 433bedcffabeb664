# frozen_string_literal: true

require "tempfile"

module Memscope
  class Check < Reading
    # Calls a block in a forked child, which shares nothing but open files with this process.
    # @api private
    module Child
      class << self
        # The child answers through a file: processes that the block forks would keep a pipe open. An exception that the
        # block raises there is raised here.
        #
        # @raise [Failed] if there is no answer
        def answer(deadline, &block)
          flush_files
          Tempfile.create("memscope", binmode: true) do |file|
            waiting = Process.detach(fork || serve(file, &block))
            ended = waiting.join(deadline)
            file.rewind
            answer = attempt { Marshal.load(file) } # rubocop:disable Security/MarshalLoad -- written by our own child
            read(answer || raise(Failed, ended ? ending(ended.value) : WORDS.fill(:silent, seconds: deadline)))
          ensure
            finish(waiting) if waiting
          end
        end

        private

        # Writes out the buffers of all files: otherwise the child's GC could close a file with unwritten data, and so
        # write the data a second time.
        def flush_files
          GC.start
          ObjectSpace.each_object(IO) do |file|
            file.flush unless file.closed?
          rescue IOError, SystemCallError
            nil # not open for writing, or full: none of its data can be written twice
          end
        end

        # Never returns, whatever the block does: no handler of at_exit runs, and no buffer of the parent is written.
        def serve(file)
          %i[INT TERM].each { |signal| trap(signal, "SYSTEM_DEFAULT") }
          answer = [:left]
          answer = [:value, yield]
        rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised again in the parent
          answer = [:raised, "#{e.class}: #{e.message}", e.backtrace, attempt { Marshal.dump(e) }]
        ensure
          begin
            file.syswrite(Marshal.dump(answer))
          ensure
            exit!
          end
        end

        # nil for an object that cannot be dumped (an exception that holds a Proc) or loaded (a file that was cut short,
        # a class that only the child has).
        def attempt
          yield
        rescue StandardError, ScriptError, SystemStackError
          nil
        end

        def finish(waiting)
          Process.kill(:KILL, waiting.pid) && waiting.join if waiting.alive?
        rescue Errno::ESRCH
          nil # it has just ended
        end

        def read(answer)
          kind, text, backtrace, dumped = answer
          raise Failed, WORDS[:left] if kind == :left
          return text if kind == :value

          error = attempt { Marshal.load(dumped) } # rubocop:disable Security/MarshalLoad
          raise((error || RuntimeError.new(text)).tap { |one| one.set_backtrace(backtrace) })
        end

        # `status` is nil if another thread has waited for the child.
        def ending(status) = WORDS.fill(:ended, status: status.to_s.sub(/\Apid \d+ /, ""))
      end
    end
  end
end
