# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope dump --pid N`: writes a heap dump of a process that listens; `memscope dump -- COMMAND`: writes a heap
    # dump of a Ruby program when it ends; `memscope dump --from DUMP`: converts a dump of ObjectSpace.dump_all.
    class DumpCommand < Command
      FORMAT = ["--format FORMAT", Limit.one_of(Dump::FORMATS.keys), "perfetto, heapsnapshot or objspace;",
                "default: by FILE's extension;", "without --output, perfetto"].freeze
      private_constant :FORMAT

      declare limits: { format: Limit.one_of(Dump::FORMATS.keys) }, process: %i[from gc],
              exclusive: [%i[from pid socket gc]]

      private

      def perform
        dump = @given[:from] ? converted(@given[:from]) : written
        Command.write(@out, @given[:json] ? "#{dump.to_json}\n" : dump.to_s(**Report::Display.of(@out).to_h))
      end

      def converted(dump)
        usage_error(:from_without_output) unless output
        from = file_of(dump)
        Dump.convert(from, output, format: @given[:format] || format_of_output)
      rescue SystemCallError => e
        File.readable?(from) ? refuse_output(output, e) : refuse_dump(dump, e.class.new.message)
      rescue Dump::Failed => e
        refuse_dump(dump, e.message)
      end

      # The other process writes FILE itself.
      def written
        note_own
        to = free_path(other? ? other.pid : Process.pid)
        return Memscope.dump(to, format: format, **@given.slice(:gc)) unless other?

        asking { other.call(:dump, path: to, format: format.name, **@given.slice(:gc)) }
      rescue SystemCallError => e
        refuse_output(to, e)
      rescue Dump::Failed => e
        failure(e.message)
      end

      def start
        order = { dump: free_path(Process.pid), format: format, json: @given[:json] }
        @given.delete(:output) # the program writes FILE, and the summary to standard error
        hand_over("report", **order)
      end

      def format = @given[:format] || (output ? format_of_output : :perfetto)

      # The format that FILE's extension stands for.
      def format_of_output
        Dump.format_of(output) ||
          usage_error(:format_unknown, file: output, endings: Dump::FORMATS.values.flatten.join(", "))
      end

      # Absolute, since the process that writes the file may be in another directory.
      def free_path(pid)
        path = File.expand_path(output || "memscope-#{pid}#{Dump::FORMATS.fetch(format).first}")
        File.exist?(path) ? refuse_output(path, Errno::EEXIST.new) : path
      end
    end
  end
end
