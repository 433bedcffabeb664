# frozen_string_literal: true

require "io/nonblock"
require "io/wait"
require "open3"

module Memscope
  class Dump < Reading
    # A dump to read: a file, which gzip or zstd may have compressed, or a FIFO.
    # @api private
    module Source
      # The first bytes of compressed files, and the commands that decompress them.
      COMMANDS = { "\x1f\x8b".b => "gzip", "\x28\xb5\x2f\xfd".b => "zstd" }.freeze
      # Dumps compress to a tenth or a thirtieth. Decompression stops at this many times the size of the file, but not
      # before EXPANDED_BYTES.
      EXPANSION_MAX = 200
      EXPANDED_BYTES = 1 << 28
      # Seconds to wait for the first byte of a FIFO.
      TIMEOUT = 10

      class << self
        # Yields an IO with the dump's lines.
        #
        # @raise [Failed] if nobody writes to a FIFO, or if the command that decompresses the file is not installed
        def open(path, &block)
          File.open(path, File::RDONLY | File::NONBLOCK | File::BINARY) do |file| # else, a FIFO's open waits forever
            file.nonblock = false
            silent = file.stat.pipe? && !file.wait_readable(TIMEOUT)
            raise Failed, "nothing was written to this FIFO within #{TIMEOUT} seconds" if silent

            command = command_for(path) if file.stat.file?
            command ? decompress(file, command, &block) : yield(file)
          end
        end

        private

        def command_for(path)
          start = File.binread(path, 4).to_s # nil of an empty file
          COMMANDS.find { |magic, _command| start.start_with?(magic) }&.last
        end

        def decompress(file, command)
          limit = [EXPANSION_MAX * file.size, EXPANDED_BYTES].max
          Open3.pipeline_r([command, "-dc"], ["head", "-c", limit.to_s], in: file, err: File::NULL) do |lines|
            lines.nonblock = false
            yield(lines)
          end
        rescue Errno::ENOENT
          raise Failed, "the file is compressed, and the command #{command} is not installed"
        end
      end
    end
  end
end
