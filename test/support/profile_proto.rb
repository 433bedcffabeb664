# frozen_string_literal: true

require "google/protobuf"
require "google/protobuf/descriptor_pb"

# The messages of profile.proto as google-protobuf reads them, in a pool of their own: the judge of what
# Profile#to_pprof writes.
module ProfileProto
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
