# frozen_string_literal: true

require_relative "copying"

module Memscope
  module CLI
    # `memscope dump --pid N` writes a heap dump of a process that listens. `memscope dump -- COMMAND` writes a heap
    # dump of a Ruby program when it ends. `memscope dump --from DUMP` converts a dump of ObjectSpace.dump_all.
    class DumpCommand < Command
      include Copying

      declare limits: { format: Limit.one_of(Dump::FORMATS.keys) }, process: %i[from gc],
              exclusive: [%i[from pid socket gc]]

      private

      # The other process, the program, or the conversion creates FILE. Standard output has the summary.
      def check
        super
        @to = @given.delete(:output)
      end

      def perform = deliver_readings([@given[:from] ? converted(@given[:from]) : written])

      def converted(dump)
        usage_error(:from_without_output) unless @to
        from = file_of(dump)
        Dump.convert(from, @to, format: @given[:format] || format_of_output)
      rescue SystemCallError => e
        File.readable?(from) ? refuse_output(@to, e) : refuse_dumps(dump, e.class.new.message)
      rescue Dump::Failed => e
        refuse_dumps(dump, e.message)
      end

      # The other process writes FILE itself, unless it is asked by way of a copy.
      def written
        note_own
        to = free_path(other? ? other.pid : Process.pid)
        return Memscope.dump(to, format: format, **@given.slice(:gc)) unless other?

        asking { answer(:dump, path: to, format: format.name, **@given.slice(:gc)) }
      rescue SystemCallError => e
        refuse_output(to, e)
      rescue Dump::Failed => e
        failure(e.message)
      end

      def start = hand_over("report", dump: free_path(Process.pid), format: format, json: @given[:json])

      def format = @given[:format] || (@to ? format_of_output : :perfetto)

      # The format that FILE's extension stands for.
      def format_of_output
        Dump.format_of(@to) || usage_error(:format_unknown, file: @to, endings: Dump::FORMATS.values.flatten.join(", "))
      end

      # Absolute, since the process that writes the file may be in another directory.
      def free_path(pid)
        path = File.expand_path(@to || "memscope-#{pid}#{Dump::FORMATS.fetch(format).first}")
        File.exist?(path) ? refuse_output(path, Errno::EEXIST.new) : path
      end
    end
  end
end
