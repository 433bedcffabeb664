# frozen_string_literal: true

require "io/wait"

module Memscope
  class Check < Reading
    # Calls a block in a forked child, which shares nothing but open files with this process.
    #
    # @api private
    module Child
      # A child that is forked while another thread's pipe is open for writing would keep that pipe open.
      LOCK = Mutex.new
      CHUNK = 1 << 16
      # Seconds that a child may take to exit after it has closed the pipe: it may write a core dump.
      PATIENCE = 5
      private_constant :LOCK, :CHUNK, :PATIENCE

      class << self
        # @param deadline [Numeric] seconds that the child may take
        # @yieldreturn [String]
        # @return [String] what the block returned in the child
        # @raise [Exception] that the block raised there
        # @raise [Failed] if there is no answer
        def answer(deadline, &)
          flush_files
          reader, pid = LOCK.synchronize { start(&) }
          answer, closed = receive(reader, deadline)
          status = finish(pid, closed ? PATIENCE : 0)
          pid = nil
          read(answer || raise(Failed, unfinished(status, deadline)))
        ensure
          finish(pid, 0) if pid
          reader&.close
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

        def start(&)
          reader, writer = IO.pipe(binmode: true)
          pid = fork
          serve(writer, &) unless pid
          writer.close
          [reader, pid]
        end

        # Never returns, whatever the block does: no handler of at_exit runs, and no buffer is written.
        def serve(writer)
          %i[INT TERM].each { |signal| trap(signal, "SYSTEM_DEFAULT") }
          answer = [:left]
          answer = [:value, yield]
        rescue Exception => e # rubocop:disable Lint/RescueException -- it is raised again in the parent
          answer = [:raised, "#{e.class}: #{e.message}", e.backtrace, dump(e)]
        ensure
          begin
            writer.write(Marshal.dump(answer))
          ensure
            exit!
          end
        end

        # @return [String, nil] nil for an exception that cannot be dumped, such as one that holds a Proc
        def dump(error)
          Marshal.dump(error)
        rescue StandardError, ScriptError, SystemStackError
          nil
        end

        # The end of the output may come late: processes that the block has forked have the pipe, too.
        #
        # @return [Array(Array, Boolean)] the child's answer, nil if it was not complete by the deadline; and whether
        #   the pipe was closed instead
        def receive(reader, deadline)
          text = "".b
          ends = Clock.now + deadline
          while (left = ends - Clock.now).positive? && reader.wait_readable(left)
            chunk = reader.read_nonblock(CHUNK, exception: false) or return [nil, true]
            text << chunk unless chunk == :wait_readable
            answer = loaded(text) and return [answer, false]
          end
          [nil, false]
        end

        # Waits at most `patience` seconds for the child to end by itself, then kills it. The child has answered, or
        # no answer is expected any more.
        #
        # @return [Process::Status, nil] nil if it did not end by itself, or another thread has waited for it
        def finish(pid, patience)
          ends = Clock.now + patience
          sleep(0.01) until (status = Process.wait2(pid, Process::WNOHANG)&.last) || Clock.now >= ends
          return status if status

          Process.kill(:KILL, pid)
          Process.wait2(pid) && nil
        rescue Errno::ECHILD
          nil
        end

        def read(answer)
          kind, text, backtrace, dumped = answer
          raise Failed, "the block was left by break, return or throw, and not at its end" if kind == :left
          return text if kind == :value

          raise((loaded(dumped) || RuntimeError.new(text)).tap { |error| error.set_backtrace(backtrace) })
        end

        # @return [Object, nil] nil for what was cut short, and for an object of a class that only the child has
        def loaded(text)
          Marshal.load(text) if text # rubocop:disable Security/MarshalLoad -- written by our own child
        rescue ArgumentError, TypeError
          nil
        end

        def unfinished(status, deadline)
          return "the forked child ended: #{status.to_s.sub(/\Apid \d+ /, '')}" if status

          "the forked child gave no answer within #{deadline} s. It has only the " \
            "thread that forked it: a block that waits for another thread needs in: " \
            ":process. A slow block needs fewer iterations: or a longer deadline:"
        end
      end
    end
    private_constant :Child
  end
end
