# frozen_string_literal: true

module Memscope
  class Profile < Reading
    class Pprof
      # The messages of profile.proto, in a pool of their own: another gem may bring the same ones.
      #
      # @api private
      module Messages
        PACKAGE = "perftools.profiles"
        # Name => { field => [number, type] }; a type in an Array is repeated.
        FIELDS = {
          ValueType: { type: [1, :int64], unit: [2, :int64] },
          Label: { key: [1, :int64], str: [2, :int64], num: [3, :int64], num_unit: [4, :int64] },
          Sample: { location_id: [1, [:uint64]], value: [2, [:int64]], label: [3, [:Label]] },
          Mapping: { id: [1, :uint64], memory_start: [2, :uint64], memory_limit: [3, :uint64],
                     file_offset: [4, :uint64], filename: [5, :int64], build_id: [6, :int64],
                     has_functions: [7, :bool], has_filenames: [8, :bool], has_line_numbers: [9, :bool],
                     has_inline_frames: [10, :bool] },
          Line: { function_id: [1, :uint64], line: [2, :int64], column: [3, :int64] },
          Location: { id: [1, :uint64], mapping_id: [2, :uint64], address: [3, :uint64], line: [4, [:Line]],
                      is_folded: [5, :bool] },
          Function: { id: [1, :uint64], name: [2, :int64], system_name: [3, :int64], filename: [4, :int64],
                      start_line: [5, :int64] },
          Profile: { sample_type: [1, [:ValueType]], sample: [2, [:Sample]], mapping: [3, [:Mapping]],
                     location: [4, [:Location]], function: [5, [:Function]], string_table: [6, [:string]],
                     drop_frames: [7, :int64], keep_frames: [8, :int64], time_nanos: [9, :int64],
                     duration_nanos: [10, :int64], period_type: [11, :ValueType], period: [12, :int64],
                     comment: [13, [:int64]], default_sample_type: [14, :int64] }
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
            messages = FIELDS.map do |name, fields|
              Google::Protobuf::DescriptorProto.new(
                name: name.name, field: fields.map { |field_name, (number, type)| field(field_name, number, type) }
              )
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
    end
  end
end
