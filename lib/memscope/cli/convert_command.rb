# frozen_string_literal: true

require_relative "command"
require_relative "../dump"

module Memscope
  module CLI
    # `memscope convert DUMP -o FILE`: converts a dump that ObjectSpace.dump_all wrote, and leaves out its
    # contents.
    class ConvertCommand < Command
      NOTES = <<~TEXT
        DUMP is what ObjectSpace.dump_all writes, by any Ruby from 2.7 on; `-` is standard
        input. Its contents, such as strings, are left out.
      TEXT
      FORMS = {
        process: { summary: "convert a dump of ObjectSpace.dump_all for Perfetto or Chrome's DevTools",
                   example: "memscope convert --output heap.pftrace heap.json", notes: NOTES,
                   options: [["-o", "--output FILE", "write to FILE, which must not exist yet"],
                             ["--format FORMAT", Dump::FORMATS.keys.map(&:name),
                              "perfetto, heapsnapshot or objspace;", "default: by FILE's ending"], TEXT.first] }
      }.freeze
      private_constant :FORMS, :NOTES

      private

      def operands = "DUMP"

      def take(operands)
        @dump, *others = operands
        refuse(others.empty? ? "no dump given" : "unexpected argument: #{others.first}") if @dump.nil? || others.any?
      end

      def perform
        usage_error("no --output given; allowed: -o FILE") unless output
        deliver_dump(Dump.convert(@dump == "-" ? "/dev/stdin" : @dump, output, format: format))
      rescue SystemCallError, Dump::Failed => e
        failure(e.message)
      end

      def format
        @given[:format]&.to_sym || Dump.format_of(output) ||
          usage_error("--output #{output}: of no known format; allowed: --format, or a file that ends with " \
                      "#{Dump::FORMATS.values.flatten.join(', ')}")
      end

      def deliver_dump(dump)
        self.class.write(@out, @given[:json] ? "#{dump.to_json}\n" : dump.to_s(**display.to_h))
      end
    end
  end
end
