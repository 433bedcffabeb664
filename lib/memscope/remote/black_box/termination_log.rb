# frozen_string_literal: true

module Memscope
  class BlackBox
    # The file of which Kubernetes puts the beginning into the status of a container that has ended. The topmost process
    # writes there, when the container's memory runs out, which process uses most of it and for what.
    # @api private
    class TerminationLog
      PATH = "/dev/termination-log"
      # Kubernetes keeps no more bytes.
      MAX_BYTES = 4096

      def initialize(path = ENV.fetch("TERMINATION_LOG", PATH))
        @path = path
      end

      # Writes a text, unless the file has another's, or replaces this object's own.
      def write(text)
        text = text.byteslice(0, MAX_BYTES).scrub("")
        change { |file| file.write(text) && @written = text.bytesize }
      end

      # Empties the file again, if its text is this object's.
      def clear = @written && change { @written = nil }

      private

      def change
        File.open(@path, File::WRONLY | File::NOFOLLOW | File::NONBLOCK) do |file|
          next unless file.stat.file? && file.stat.size == @written.to_i

          file.truncate(0)
          yield file
        end
      rescue SystemCallError
        nil # there is none, or it is not writable
      end
    end
  end
end
