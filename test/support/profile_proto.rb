# frozen_string_literal: true

require_relative "protobuf_messages"

# The messages of profile.proto, in a descriptor pool of their own: google-protobuf checks the output of
# Profile#to_pprof with them.
module ProfileProto
  # Fields are numbered from 1 on.
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
  }.transform_values { |types| types.each.with_index(1).to_h { |(name, type), number| [name, [number, type]] } }.freeze
  private_constant :FIELDS

  ProtobufMessages.define(self, "perftools.profiles", FIELDS)
end
