# frozen_string_literal: true

require_relative "protobuf_messages"

# The messages of Perfetto that make a heap graph, in a descriptor pool of their own: google-protobuf checks dumps with
# them. Field numbers are those of perfetto/protos, trace_packet.proto and profiling/heap_graph.proto.
module HeapGraphProto
  FIELDS = {
    Process: { pid: [1, :int32], ppid: [2, :int32], cmdline: [3, [:string]] },
    ProcessTree: { processes: [1, [:Process]] },
    InternedString: { iid: [1, :uint64], str: [2, :string] },
    HeapGraphRoot: { object_ids: [1, [:uint64]], root_type: [2, :int32] },
    HeapGraphType: { id: [1, :uint64], location_id: [2, :uint64], class_name: [3, :string], object_size: [4, :uint64],
                     superclass_id: [5, :uint64], reference_field_id: [6, [:uint64]], kind: [7, :int32],
                     classloader_id: [8, :uint64] },
    HeapGraphObject: { id: [1, :uint64], id_delta: [7, :uint64], type_id: [2, :uint64], self_size: [3, :uint64],
                       reference_field_id_base: [6, :uint64], reference_field_id: [4, [:uint64]],
                       reference_object_id: [5, [:uint64]], native_allocation_registry_size_field: [8, :int64],
                       heap_type_delta: [9, :int32], runtime_internal_object_id: [10, [:uint64]] },
    HeapGraph: { pid: [1, :int32], objects: [2, [:HeapGraphObject]], field_names: [4, [:InternedString]],
                 continued: [5, :bool], index: [6, :uint64], roots: [7, [:HeapGraphRoot]],
                 location_names: [8, [:InternedString]], types: [9, [:HeapGraphType]],
                 heap_bytes_allocated: [10, :uint64] },
    TracePacket: { process_tree: [2, :ProcessTree], timestamp: [8, :uint64],
                   trusted_packet_sequence_id: [10, :uint32], heap_graph: [56, :HeapGraph] },
    Trace: { packet: [1, [:TracePacket]] }
  }.freeze
  private_constant :FIELDS

  ProtobufMessages.define(self, "perfetto.protos", FIELDS)
end
