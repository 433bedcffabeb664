# frozen_string_literal: true

require "io/nonblock"
require "io/wait"

module Memscope
  class Dump < Reading
    # A dump to read: a file or a FIFO.
    # @api private
    module Source
      # Seconds to wait for the first byte of a FIFO.
      TIMEOUT = 10

      # Yields an IO with the dump's lines.
      #
      # @raise [Failed] if nobody writes to a FIFO
      def self.open(path)
        File.open(path, File::RDONLY | File::NONBLOCK | File::BINARY) do |file| # else, a FIFO's open waits forever
          file.nonblock = false
          silent = file.stat.pipe? && !file.wait_readable(TIMEOUT)
          raise Failed, "nothing was written to this FIFO within #{TIMEOUT} seconds" if silent

          yield(file)
        end
      end
    end
  end
end
