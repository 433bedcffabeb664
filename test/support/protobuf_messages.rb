# frozen_string_literal: true

require "google/protobuf"
require "google/protobuf/descriptor_pb"

# Classes of messages as google-protobuf makes them, in a pool of their own, from a table:
# { Name: { field: [number, type] } }; a type in an Array is repeated, and may be the name of a message.
module ProtobufMessages
  class << self
    # Defines each message of the table as a constant of the module.
    def define(owner, package, fields)
      pool = Google::Protobuf::DescriptorPool.new
      pool.add_serialized_file(Google::Protobuf::FileDescriptorProto.encode(file(package, fields)))
      fields.each_key { |name| owner.const_set(name, pool.lookup("#{package}.#{name}").msgclass) }
    end

    private

    def file(package, fields)
      messages = fields.map do |message, types|
        described = types.map { |name, (number, type)| field(name, number, type, package, fields) }
        Google::Protobuf::DescriptorProto.new(name: message.name, field: described)
      end
      Google::Protobuf::FileDescriptorProto.new(name: "#{package}.proto", package: package, syntax: "proto3",
                                                message_type: messages)
    end

    def field(name, number, type, package, fields)
      single = Array(type).first
      message = fields.key?(single)
      Google::Protobuf::FieldDescriptorProto.new(
        name: name.name, number: number, label: type.is_a?(Array) ? :LABEL_REPEATED : :LABEL_OPTIONAL,
        type: message ? :TYPE_MESSAGE : :"TYPE_#{single.upcase}",
        **(message ? { type_name: ".#{package}.#{single}" } : {})
      )
    end
  end
end
