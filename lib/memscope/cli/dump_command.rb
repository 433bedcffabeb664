# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope dump --pid N`: writes a heap dump of a process that listens; `memscope dump -- COMMAND`: writes a heap
    # dump of a Ruby program when it ends; `memscope dump --from DUMP`: converts a dump of ObjectSpace.dump_all.
    class DumpCommand < Command
      include DumpFiles

      NOTES = <<~TEXT
        The dump has names of classes, constants and variables, but no objects'
        contents. Open perfetto files at https://ui.perfetto.dev, heapsnapshot in
        Chrome's DevTools, objspace in heapy and others. The process itself writes FILE,
        which must not exist yet.
        DUMP is a file that ObjectSpace.dump_all wrote, in any Ruby from 2.7 on; gzip or
        zstd may have compressed it; `-` is standard input.
      TEXT
      FILE = ["-o", "--output FILE", "default: memscope-PID with the format's", "extension, such as .pftrace"].freeze
      FORMAT = ["--format FORMAT", Dump::FORMATS.keys.map(&:name), "perfetto, heapsnapshot or objspace;",
                "default: by FILE's extension;", "without --output, perfetto"].freeze
      private_constant :NOTES, :FILE, :FORMAT

      form :process, "write a heap dump of a process, without objects' contents",
           "memscope dump --pid 4711 -o heap.pftrace\n  memscope dump --from heap.json -o heap.pftrace",
           [*PROCESS, FORMAT, FILE, SUMMARY, ["--gc", "collect garbage first"],
            ["--from DUMP", "convert DUMP, without objects' contents"]],
           notes: NOTES, exclusive: [%i[from pid socket gc]]
      form :program, "run a Ruby program and write a heap dump when it ends",
           "memscope dump -o heap.heapsnapshot -- ruby app.rb", [FORMAT, FILE, SUMMARY], notes: NOTES

      private

      def perform
        return deliver_dump(converted(@given[:from])) if @given[:from]

        note_own
        deliver_dump(other? ? asking { of_other } : own)
      end

      def converted(dump)
        usage_error("--from needs --output FILE") unless output
        from = file_of(dump)
        check_dump(from)
        Dump.convert(from, output, format: @given[:format]&.to_sym || format_of_output)
      rescue SystemCallError => e
        refuse_output(output, e)
      rescue Dump::Failed => e
        refuse_dump(dump, e.message)
      end

      def own
        Memscope.dump(path(Process.pid), format: format, **@given.slice(:gc))
      rescue SystemCallError => e
        refuse_output(path(Process.pid), e)
      rescue Dump::Failed => e
        failure(e.message)
      end

      # The other process writes FILE; whether FILE exists already can be checked here too.
      def of_other
        refuse_output(path(other.pid), Errno::EEXIST.new) if File.exist?(path(other.pid))
        other.call(:dump, path: path(other.pid), format: format.name, **@given.slice(:gc))
      rescue Client::Failed => e
        failure(e.message)
      end

      def start(program)
        failure(Memscope.unsupported_reason) unless Memscope.supported?
        refuse_output(path(Process.pid), Errno::EEXIST.new) if File.exist?(path(Process.pid))
        environment = Launch::Environment.new(ENV)
        order = { title: self.class.title, status: INPUT_OUTPUT, dump: path(Process.pid), format: format }
        Launch::Handoff.write("report", environment, json: @given[:json], **order)
        become(program, environment)
      end

      def format = @given[:format]&.to_sym || (output ? format_of_output : :perfetto)

      # Absolute, since the process that writes the file may be in another directory.
      def path(pid) = File.expand_path(output || "memscope-#{pid}#{Dump::FORMATS.fetch(format).first}")
    end
  end
end
