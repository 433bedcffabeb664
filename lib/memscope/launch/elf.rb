# frozen_string_literal: true

module Memscope
  module Launch
    # The one thing in an ELF file (elf(5)) that decides whether anything can be preloaded.
    module ELF
      MAGIC = "\x7FELF".b.freeze
      # The type of the segment that names the dynamic linker, and the longest path that the kernel takes there.
      PT_INTERP = 3
      PATH_MAX = 4096

      # Where the fields stand, by the class of the file (32 or 64 bits), and how its addresses are packed.
      Layout = Struct.new(:address, :headers_at, :header_size_at, :segment_offset_at, :segment_size_at)
      LAYOUTS = { 1 => Layout.new("L", 28, 42, 4, 16), 2 => Layout.new("Q", 32, 54, 8, 32) }.freeze
      private_constant :MAGIC, :PT_INTERP, :PATH_MAX, :Layout, :LAYOUTS

      class << self
        # @param header [String] the first bytes of a file
        # @return [Boolean]
        def magic?(header) = header.b.start_with?(MAGIC)

        # @param path [String] of an ELF file
        # @return [String, nil] its dynamic linker; nil when it has none
        # @raise [Refusal] when the file is damaged or cannot be read
        def interpreter(path)
          File.open(path, "rb") do |file|
            identity = file.pread(64, 0)
            layout = LAYOUTS.fetch(identity.getbyte(4))
            find_interpreter(file, identity, layout, identity.getbyte(5) == 2 ? ">" : "<")
          end
        rescue SystemCallError, IOError, ArgumentError, IndexError, RangeError => e
          raise Refusal, "#{path}: its ELF header cannot be read: #{e.message}"
        end

        private

        def find_interpreter(file, identity, layout, order)
          address = "#{layout.address}#{order}"
          headers = identity.unpack1(address, offset: layout.headers_at)
          size, count = identity.unpack("S#{order}2", offset: layout.header_size_at)
          count.times do |index|
            segment = file.pread(size, headers + (index * size))
            next unless segment.unpack1("L#{order}") == PT_INTERP

            length = segment.unpack1(address, offset: layout.segment_size_at)
            return file.pread([length, PATH_MAX].min, segment.unpack1(address, offset: layout.segment_offset_at))
                       .delete_suffix("\0")
          end
          nil
        end
      end
    end
  end
end
