# frozen_string_literal: true

require "zlib"
require_relative "../../requirement"

Memscope::Requirement.load("Memscope::Profile#to_pprof", gem: "google-protobuf", feature: "google/protobuf")
require "google/protobuf/descriptor_pb"

module Memscope
  class Profile < Reading
    module Formats
      # Gzipped profile.proto, like Go's heap profiles: https://github.com/google/pprof/tree/main/proto
      #
      # @api private
      class Pprof
        # The messages of profile.proto, in a pool of their own: another gem may define the same messages.
        #
        # @api private
        module Messages
          PACKAGE = "perftools.profiles"
          # Name => { field => type }; fields are numbered from 1 on, and a type in an Array is repeated.
          FIELDS = {
            ValueType: { type: :int64, unit: :int64 },
            Label: { key: :int64, str: :int64, num: :int64, num_unit: :int64 },
            Sample: { location_id: [:uint64], value: [:int64], label: [:Label] },
            Mapping: { id: :uint64, memory_start: :uint64, memory_limit: :uint64, file_offset: :uint64,
                       filename: :int64, build_id: :int64, has_functions: :bool, has_filenames: :bool,
                       has_line_numbers: :bool, has_inline_frames: :bool },
            Line: { function_id: :uint64, line: :int64, column: :int64 },
            Location: { id: :uint64, mapping_id: :uint64, address: :uint64, line: [:Line], is_folded: :bool },
            Function: { id: :uint64, name: :int64, system_name: :int64, filename: :int64, start_line: :int64 },
            Profile: { sample_type: [:ValueType], sample: [:Sample], mapping: [:Mapping], location: [:Location],
                       function: [:Function], string_table: [:string], drop_frames: :int64, keep_frames: :int64,
                       time_nanos: :int64, duration_nanos: :int64, period_type: :ValueType, period: :int64,
                       comment: [:int64], default_sample_type: :int64 }
          }.freeze
          private_constant :PACKAGE, :FIELDS

          class << self
            private

            def field(name, number, type)
              repeated = type.is_a?(Array)
              type = type.first if repeated
              message = FIELDS.key?(type)
              Google::Protobuf::FieldDescriptorProto.new(
                name: name.name, number: number, label: repeated ? :LABEL_REPEATED : :LABEL_OPTIONAL,
                type: message ? :TYPE_MESSAGE : :"TYPE_#{type.upcase}",
                **(message ? { type_name: ".#{PACKAGE}.#{type}" } : {})
              )
            end

            def pool
              messages = FIELDS.map do |message, types|
                fields = types.each.with_index(1).map { |(name, type), number| field(name, number, type) }
                Google::Protobuf::DescriptorProto.new(name: message.name, field: fields)
              end
              file = Google::Protobuf::FileDescriptorProto.new(name: "memscope/profile.proto", package: PACKAGE,
                                                               syntax: "proto3", message_type: messages)
              Google::Protobuf::DescriptorPool.new.tap do |made|
                made.add_serialized_file(Google::Protobuf::FileDescriptorProto.encode(file))
              end
            end
          end

          POOL = pool
          private_constant :POOL
          FIELDS.each_key { |name| const_set(name, POOL.lookup("#{PACKAGE}.#{name}").msgclass) }
        end
        private_constant :Messages

        # Go's sample types, in Go's order; pprof shows the last one by default.
        ALLOCATED = { %w[alloc_objects count] => :allocated_objects, %w[alloc_space bytes] => :allocated_bytes }.freeze
        LIVE = { %w[inuse_objects count] => :live_objects, %w[inuse_space bytes] => :live_bytes }.freeze
        # The first mapping, which names the whole profile.
        PROGRAM = "ruby"
        private_constant :ALLOCATED, :LIVE, :PROGRAM

        # @param parts [Array<Array(Profile, Hash{String => String})>] at least one Profile or Difference, each with the
        #   labels for all of its samples
        # @param comments [Array<String>]
        def initialize(parts, comments: [])
          @parts = parts
          @comments = comments
          @profile = parts.first.first
          @numbers = allocations? ? { **ALLOCATED, **LIVE } : LIVE
          @strings = { "" => 0 }
          @mappings = {}
          @functions = {}
          @locations = {}
        end

        # @return [String] binary; the same for the same profile, except for the time in the gzip header
        def to_s = Zlib.gzip(Messages::Profile.encode(message))

        private

        # Whether the allocated numbers are known for all profiles; those without stacks have none, and are ignored.
        def allocations?
          sampled = @parts.map(&:first).reject { |profile| profile.stacks.empty? }
          sampled.any? && sampled.all?(&:allocations?)
        end

        # The table of strings comes last: the other tables fill it.
        def message
          mapping(PROGRAM)
          samples = @parts.flat_map { |profile, labels| samples(profile, labels) }
          Messages::Profile.new(
            sample_type: @numbers.keys.map { |type, unit| value_type(type, unit) }, sample: samples,
            location: @locations.values, mapping: @mappings.values, function: @functions.values, **circumstances,
            string_table: @strings.keys
          )
        end

        def circumstances
          { time_nanos: nanoseconds(@profile.at), duration_nanos: duration, period: period,
            period_type: value_type("space", "bytes"), default_sample_type: string("inuse_space"),
            comment: [*@parts.map { |profile, _labels| origin(profile) }, *@comments].map { |text| string(text) } }
        end

        # The format has room for one period: the largest, which pprof keeps too when it merges profiles. The numbers
        # are already scaled by the rate of their own profile, so the period does not affect their sums.
        def period = @parts.map { |profile, _labels| profile.rate_bytes }.max

        def origin(profile)
          "memscope #{profile.memscope}, ruby #{profile.ruby}, process #{profile.pid}, one sample for each " \
            "#{profile.rate_bytes} bytes"
        end

        def duration
          return (@profile.seconds * 1_000_000_000).to_i if @profile.difference?

          nanoseconds(@profile.at) - nanoseconds(@profile.started_at)
        end

        def nanoseconds(time) = (time.to_i * 1_000_000_000) + time.nsec

        def string(text) = @strings[text] ||= @strings.size

        def value_type(type, unit) = Messages::ValueType.new(type: string(type), unit: string(unit))

        def samples(profile, labels)
          ids = profile.frames.map { |frame| location(frame).id }
          profile.stacks.map do |stack|
            Messages::Sample.new(location_id: ids.values_at(*stack.frames), label: labels(stack, labels),
                                 value: @numbers.values.map { |number| stack.public_send(number) })
          end
        end

        def labels(stack, more)
          { "tag" => stack.tag, "thread" => stack.thread, "generation" => stack.generation.to_s, **more }
            .compact.map { |key, text| Messages::Label.new(key: string(key), str: string(text)) }
        end

        def location(frame)
          @locations[frame] ||= begin
            line = Messages::Line.new(function_id: function(frame).id, line: frame.lineno || 0)
            Messages::Location.new(id: @locations.size + 1, mapping_id: mapping(object(frame)).id, line: [line])
          end
        end

        # Without a system_name: if it equals the name, pprof demangles the name and loses "<main>".
        def function(frame)
          file = string(frame.path || frame.library || "")
          name = string(frame.name)
          @functions[[name, file]] ||= Messages::Function.new(id: @functions.size + 1, name: name, filename: file)
        end

        def object(frame) = (frame.library if frame.kind == :native) || PROGRAM

        # The mapping of the object that contains a function, marked as symbolised already.
        def mapping(file)
          known = %i[has_functions has_filenames has_line_numbers has_inline_frames].to_h { |name| [name, true] }
          @mappings[file] ||= Messages::Mapping.new(id: @mappings.size + 1, filename: string(file), **known)
        end
      end
    end
  end
end
