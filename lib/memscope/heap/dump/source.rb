# frozen_string_literal: true

require "io/nonblock"
require "io/wait"
require "open3"

module Memscope
  class Dump < Reading
    # A dump to read: a file, which gzip or zstd may have compressed, or a FIFO.
    #
    # @api private
    module Source
      # What a compressed file begins with, and the command that decompresses it.
      COMMANDS = { "\x1f\x8b".b => "gzip", "\x28\xb5\x2f\xfd".b => "zstd" }.freeze
      # Dumps compress to a tenth or a thirtieth. What is beyond this many times the size of the file, and beyond
      # EXPANDED_BYTES, is cut off.
      EXPANSION_MAX = 200
      EXPANDED_BYTES = 1 << 28
      # Seconds to wait for the first byte of a FIFO.
      TIMEOUT = 10

      class << self
        # @yieldparam file [IO] with the dump's lines
        # @return [Object] the block's value
        # @raise [SystemCallError] if the file cannot be opened
        # @raise [Failed] if nobody writes to a FIFO, or if the command that decompresses the file is not installed
        def open(path, &block)
          File.open(path, File::RDONLY | File::NONBLOCK | File::BINARY) do |file| # else, a FIFO's open waits for ever
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
