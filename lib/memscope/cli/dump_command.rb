# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope dump --pid N`: writes a heap dump of a process that listens; `memscope dump -- COMMAND`: writes a heap
    # dump of a Ruby program when it ends; `memscope dump --from DUMP`: converts a dump of ObjectSpace.dump_all.
    class DumpCommand < Command
      NOTES = <<~TEXT
        The dump has names of classes, constants and variables, but no objects'
        contents. Open perfetto files at https://ui.perfetto.dev, heapsnapshot in
        Chrome's DevTools, objspace in heapy and others. The process itself writes FILE,
        which must not exist yet.
        DUMP is a file that ObjectSpace.dump_all wrote, in any Ruby from 2.7 on; gzip or
        zstd may have compressed it; `-` is standard input.
      TEXT
      FORMAT = ["--format FORMAT", Limit.one_of(Dump::FORMATS.keys), "perfetto, heapsnapshot or objspace;",
                "default: by FILE's extension;", "without --output, perfetto"].freeze
      private_constant :NOTES, :FORMAT

      declare "write a heap dump of a process, without objects' contents",
              "memscope dump --pid 4711 -o heap.pftrace", "memscope dump --from heap.json -o heap.pftrace",
              "memscope dump -o heap.heapsnapshot -- ruby app.rb",
              options: [*PROCESS, FORMAT,
                        ["-o", "--output FILE", "default: memscope-PID.EXTENSION"],
                        ["--json", "print the summary as JSON; FILE stays", "a dump in its format"],
                        ["--gc", "collect garbage first"], ["--from DUMP", "convert DUMP, without objects' contents"]],
              program: [], process: %i[from gc], notes: NOTES, exclusive: [%i[from pid socket gc]]

      private

      def perform
        dump = @given[:from] ? converted(@given[:from]) : written
        Command.write(@out, @given[:json] ? "#{dump.to_json}\n" : dump.to_s(**Report::Display.of(@out).to_h))
      end

      def converted(dump)
        usage_error("--from needs --output FILE") unless output
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
        environment = Launch::Environment.new(ENV)
        order = { dump: free_path(Process.pid), format: format, display: Report::Display.of(@err).to_h }
        write_order("report", environment, output: nil, json: @given[:json], **order)
        become(environment)
      end

      def format = @given[:format] || (output ? format_of_output : :perfetto)

      # The format that FILE's extension stands for.
      def format_of_output
        Dump.format_of(output) ||
          usage_error("--output #{output}: of no known format; allowed: --format, or a file that ends with " \
                      "#{Dump::FORMATS.values.flatten.join(', ')}")
      end

      # Absolute, since the process that writes the file may be in another directory.
      def free_path(pid)
        path = File.expand_path(output || "memscope-#{pid}#{Dump::FORMATS.fetch(format).first}")
        File.exist?(path) ? refuse_output(path, Errno::EEXIST.new) : path
      end
    end
  end
end
