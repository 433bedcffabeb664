# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope convert DUMP -o FILE`: converts a dump that ObjectSpace.dump_all wrote, and leaves out the objects'
    # contents.
    class ConvertCommand < Command
      include DumpFiles

      NOTES = <<~TEXT
        DUMP is a file that ObjectSpace.dump_all wrote, in any Ruby from 2.7 on; gzip or
        zstd may have compressed it; `-` is standard input. memscope leaves out the objects' contents, such as strings.
      TEXT
      FORMS = {
        process: { summary: "convert an ObjectSpace dump for Perfetto or Chrome's DevTools",
                   example: "memscope convert --output heap.pftrace heap.json", notes: NOTES,
                   options: [["-o", "--output FILE", "write to FILE, which must not exist yet"],
                             ["--format FORMAT", Dump::FORMATS.keys.map(&:name),
                              "perfetto, heapsnapshot or objspace;", "default: by FILE's extension"],
                             SUMMARY] }
      }.freeze
      private_constant :FORMS, :NOTES

      private

      def operands = "DUMP"

      def take(operands)
        super(operands, 1)
        @dump = operands.first || refuse("no dump given")
      end

      def perform
        usage_error("no --output given; allowed: -o FILE") unless output
        from = file_of(@dump)
        check_dump(from)
        deliver_dump(Dump.convert(from, output, format: format))
      rescue SystemCallError => e
        refuse_output(output, e)
      rescue Dump::Failed => e
        refuse_dump(@dump, e.message)
      end

      def format = @given[:format]&.to_sym || format_of_output
    end
  end
end
