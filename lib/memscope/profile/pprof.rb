# frozen_string_literal: true

require "zlib"

module Memscope
  class Profile < Reading
    # Gzipped profile.proto, like Go's heap profiles: https://github.com/google/pprof/tree/main/proto
    # @api private
    class Pprof
      # The part of Protobuf's wire format that profile.proto needs: https://protobuf.dev/programming-guides/encoding
      #
      # Encoded directly: message objects for each sample and label would be slow to create, and google-protobuf's
      # message objects have a slow size function (ObjectSpace.memsize_of), which visits, for each object, all arenas
      # that are fused with the object's own arena.
      module Wire
        SMALL = Array.new(128) { |number| [number].pack("C").freeze }.freeze

        module_function

        # `number` has 64 bits. Negative ones are written as two's complement.
        def varint(number)
          return SMALL[number] if number.between?(0, 127)

          number &= 0xffff_ffff_ffff_ffff
          groups = []
          until number < 128
            groups << ((number & 127) | 128)
            number >>= 7
          end
          groups.push(number).pack("C*")
        end

        # Zeros are left out: they are the default.
        def numbers(fields) = fields.map { |field, value| value.zero? ? "" : varint(field << 3) + varint(value) }.join

        # `content` is a text, a message, or varints one after the other (a packed field).
        def bytes(field, content) = "#{varint((field << 3) | 2)}#{varint(content.bytesize)}".b << content.b

        def repeated(field, contents) = contents.map { |content| bytes(field, content) }.join
      end

      # Field numbers of the message Profile.
      FIELDS = { sample_type: 1, sample: 2, mapping: 3, location: 4, function: 5, string_table: 6, time_nanos: 9,
                 duration_nanos: 10, period_type: 11, period: 12, comment: 13, default_sample_type: 14 }.freeze
      # Fields of the message Mapping: has_functions, has_filenames, has_line_numbers, has_inline_frames.
      SYMBOLISED = { 7 => 1, 8 => 1, 9 => 1, 10 => 1 }.freeze

      # Go's sample types, in Go's order. By default, pprof shows the last one.
      ALLOCATED = { %w[alloc_objects count] => :allocated_objects, %w[alloc_space bytes] => :allocated_bytes }.freeze
      LIVE = { %w[inuse_objects count] => :live_objects, %w[inuse_space bytes] => :live_bytes }.freeze
      # The first mapping, which names the whole profile.
      PROGRAM = "ruby"
      # Added to zlib's window bits: a gzip header, without a time.
      GZIP = 16
      # The entry points of the allocator, of the C library, and of Ruby (in gc.c, and since 3.4 in gc/default).
      WRAPPERS = /\A(?:_*(?:libc|je|mi|tc|ruby|rb|objspace)_(?:gc_impl_)?)?x?
                  (?:malloc|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc)/x

      # `parts` are Profiles, one or more, each with the labels for all of its samples.
      def initialize(parts, comments: [])
        @parts = parts
        @comments = comments
        @profile = parts.first.first
        # The allocated numbers are known if they are for all profiles with stacks: others have no such numbers.
        sampled = parts.map(&:first).reject { |profile| profile.stacks.empty? }
        @numbers = sampled.any? && sampled.all?(&:allocations?) ? { **ALLOCATED, **LIVE } : LIVE
        @strings = { "" => 0 }
        @mappings = {}
        @functions = {}
        @locations = {}
      end

      # Binary. The same profile gives the same bytes.
      def to_s = Zlib::Deflate.new(nil, Zlib::MAX_WBITS + GZIP).deflate(message, Zlib::FINISH)

      private

      # The table of strings comes last: the other tables fill it.
      def message
        mapping(PROGRAM)
        samples = @parts.flat_map { |profile, labels| samples(profile, labels) }
        comments = [*@parts.map { |profile, _labels| origin(profile) }, *@comments]
        tables = { sample_type: @numbers.keys.map { |type, unit| value_type(type, unit) }, sample: samples,
                   location: @locations.values.map(&:last), mapping: @mappings.values.map(&:last),
                   function: @functions.values.map(&:last), period_type: [value_type("space", "bytes")],
                   comment: [comments.map { |text| Wire.varint(string(text)) }.join], string_table: @strings.keys }
        tables.map { |name, contents| Wire.repeated(FIELDS.fetch(name), contents) }.join << totals
      end

      def totals
        Wire.numbers({ time_nanos: nanoseconds(@profile.at), duration_nanos: duration, period: period,
                       default_sample_type: @strings.fetch("inuse_space") }.transform_keys(FIELDS))
      end

      # The format has room for one period: the largest, which pprof keeps too when it merges profiles. The numbers
      # are already scaled by the rate of their own profile, so the period does not affect their sums.
      def period = @parts.map { |profile, _labels| profile.rate_bytes || 1 }.max

      def origin(profile)
        sampling = "one sample for each #{profile.rate_bytes} bytes"
        sampling = "objects sampled in #{profile.windows} windows of allocations" if profile.objects?
        "memscope #{profile.memscope}, ruby #{profile.ruby}, process #{profile.pid}, #{sampling}"
      end

      def duration = nanoseconds(@profile.at) - nanoseconds(@profile.since || @profile.started_at)

      def nanoseconds(time) = (time.to_i * 1_000_000_000) + time.nsec

      def string(text) = @strings[text] ||= @strings.size

      def value_type(type, unit) = Wire.numbers({ 1 => string(type), 2 => string(unit) })

      def samples(profile, labels)
        ids = profile.frames.map { |frame| Wire.varint(location(frame)) }
        wrappers = profile.frames.map { |frame| wrapper?(frame) }
        profile.stacks.map do |stack|
          values = @numbers.values.map { |number| Wire.varint(stack.public_send(number)) }
          [locations(stack.frames, ids, wrappers), Wire.bytes(2, values.join),
           Wire.repeated(3, labels(stack, labels))].join
        end
      end

      # The innermost frames of every stack are malloc itself and the functions through which Ruby calls it: pprof would
      # attribute all memory to them. They stay if nothing else is there.
      def locations(frames, ids, wrappers)
        return "" if frames.empty?

        kept = frames.drop_while { |frame| wrappers[frame] }
        Wire.bytes(1, ids.values_at(*(kept.empty? ? frames : kept)).join)
      end

      def wrapper?(frame)
        frame.kind == :native && Libraries.runtime?(frame.library) && (!frame.named? || frame.name.match?(WRAPPERS))
      end

      def labels(stack, more)
        { "tag" => stack.tag, "thread" => stack.thread, "generation" => stack.generation.to_s,
          "class" => stack.class_name, **more }
          .compact.map { |key, text| Wire.numbers({ 1 => string(key), 2 => string(text) }) }
      end

      # Locations, functions and mappings are kept with their ids, which count from 1 on.
      def location(frame)
        kept(@locations, frame) do |id|
          line = Wire.numbers({ 1 => function(frame), 2 => frame.lineno || 0 })
          Wire.numbers({ 1 => id, 2 => mapping(object(frame)) }) << Wire.bytes(4, line)
        end
      end

      # Without a system_name: if it equals the name, pprof demangles the name and loses "<main>".
      def function(frame)
        file = string(frame.path || frame.library || "")
        name = string(frame.name)
        kept(@functions, [name, file]) { |id| Wire.numbers({ 1 => id, 2 => name, 4 => file }) }
      end

      def object(frame) = (frame.library if frame.kind == :native) || PROGRAM

      # The mapping of the object that contains a function, marked as symbolised already.
      def mapping(file) = kept(@mappings, file) { |id| Wire.numbers({ 1 => id, 5 => string(file), **SYMBOLISED }) }

      def kept(table, key) = (table[key] ||= [table.size + 1, yield(table.size + 1)]).first
    end
  end
end
