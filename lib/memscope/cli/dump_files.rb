# frozen_string_literal: true

module Memscope
  module CLI
    # The files of commands that read or write heap dumps.
    module DumpFiles
      private

      # Refuses a file that memscope does not read. If it has a format that memscope only writes, the message says so.
      def refuse_dump(path, why)
        written = (Dump::FORMATS.keys - [:objspace]).find { |format| Dump.format_of(path) == format }
        failure("#{path}: #{why}; allowed: the lines of ObjectSpace.dump_all or of memscope dump --format objspace" \
                "#{"; memscope writes #{written}, but does not read it" if written}")
      end

      # What to open for a DUMP: `-` is standard input.
      def file_of(dump) = dump == "-" ? "/dev/stdin" : dump

      # A FIFO must not be opened just to test it: its writer would lose its reader.
      def check_dump(path)
        refuse_dump(path, Errno::EISDIR.new.message) if File.directory?(path)
        return if File.readable?(path)

        refuse_dump(path, (File.exist?(path) ? Errno::EACCES : Errno::ENOENT).new.message)
      end
    end
  end
end
