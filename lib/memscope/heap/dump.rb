# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # A heap dump that was written: every object of Ruby's heap with its class, its size and its references, for tools
  # that show retention paths.
  #
  # * :perfetto, for https://ui.perfetto.dev, which opens it in the Heapdump Explorer and uploads nothing
  # * :heapsnapshot, for the Memory panel of Chrome's DevTools, and for editors and tools that read V8's format
  # * :objspace, the lines of ObjectSpace.dump_all, for heapy, heap-profiler, sheap and others
  #
  # A dump has no contents: no string, symbol, number or Hash key, no path and no address. It has the names of classes,
  # constants and variables, which normally come from code. If a program makes such names from data, they reveal that
  # data. Sizes are rounded up to sizes that the allocator has. A converted dump keeps the sizes of the original. An
  # object is identified by its distance from BasicObject in the heap. That distance is the same in each dump of one
  # process, unless a reason for `numbers` excludes that. A new object may take the place of a freed one.
  class Dump < Reading
    # Nothing was read or written, for the reason in the message.
    class Failed < StandardError; end

    # The formats, in the extension's order, with the endings of their files.
    FORMATS = { perfetto: %w[.pftrace .perfetto-trace], heapsnapshot: %w[.heapsnapshot],
                objspace: %w[.json .jsonl .ndjson] }.freeze
    # Seconds that a dump may be given.
    DEADLINES = (0.001..3600)

    class << self
      # (see Memscope.dump)
      def write(path, format: :perfetto, gc: false, deadline: 60, native: Native)
        Field.choice(:format, format, FORMATS.keys, call: "Memscope.dump")
        check_switch(:gc, gc)
        Field.seconds(:deadline, deadline, DEADLINES, "seconds above 0, up to #{DEADLINES.end}", call: "Memscope.dump")
        # The size rule, by its number in the extension. Unknown allocators get jemalloc's rule, the coarsest.
        sizes = Allocator.read(native: native).name == :glibc ? 1 : 2
        create(path, format) { |file, kind| native.dump(file.fileno, kind, sizes, gc, (deadline * 1000).ceil) }
      end

      # Converts a dump that ObjectSpace.dump_all wrote, in any Ruby since 2.7, and leaves out its contents.
      #
      # @param from [String] the path of that dump
      # @param path [String] of a file that does not exist yet
      # @param format [Symbol, nil] one of FORMATS; nil: by the path's ending
      # @return [Dump]
      # @raise [ArgumentError] for an unknown format
      # @raise [SystemCallError] if a file cannot be read or written; no partial file is left then
      # @raise [Failed] if the dump cannot be understood
      def convert(from, path, format: nil)
        format ||= format_of(path)
        Field.choice(:format, format, FORMATS.keys, call: "Memscope.dump")
        File.open(from, "rb") do |dump|
          create(path, format) { |file, kind| Native.convert_dump(dump.fileno, file.fileno, kind) }
        end
      end

      # @api private
      def format_of(path) = FORMATS.find { |_format, endings| path.to_s.end_with?(*endings) }&.first

      private

      # No other user may read the file. If it cannot be written in full, it is removed.
      def create(path, format)
        path = File.path(path)
        File.open(path, File::WRONLY | File::CREAT | File::EXCL | File::BINARY, 0o600) do |file|
          result = yield(file, FORMATS.keys.index(format))
          file.close # may report a failed write
          whole = take(result, path, format)
        ensure
          File.unlink(path) unless whole
        end
      end

      def take(result, path, format)
        case result
        when Hash
          result[:reasons][:names] = :names_from_code
          capture(result.update(path: path, format: format, redacted: true))
        when Integer then raise SystemCallError.new(path, result)
        else raise Failed, "no dump was written: #{Reasons.sentences(dump: result)[:dump]}"
        end
      end
    end

    # @api private
    def known? = true
  end
end
