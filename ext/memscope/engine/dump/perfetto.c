/*
 * A Perfetto trace with one heap graph, for the Heapdump Explorer. The numbers of fields are those of
 * protos/perfetto/trace/trace_packet.proto and profiling/heap_graph.proto. The importer's rules for them are in
 * src/trace_processor/plugins/heap_graph_importer (heap_graph_module.cc, heap_graph_tracker.cc):
 *
 * - All parts of a graph have the same timestamp and sequence, and consecutive indexes. All but the last are marked as
 *   continued.
 * - A type of kind "array" needs no field names of its own, so each object names its references itself.
 * - In a field's name, the text before a blank would count as its type, so names have no blanks.
 * - References without a name are written as runtime-internal ones.
 */
#include "dump/heap_dump.h"

#include <errno.h>
#include <string.h>

/* A part ends with the object that makes it this many bytes long. */
#define PART ((size_t)1 << 20)
#define SEQUENCE 1
#define KIND_ARRAY 4
#define HEAP_TYPE_APP 1

enum wire_type { VARINT = 0, BYTES = 2 };

/* ---- messages -------------------------------------------------------------------------------------------------- */

struct message {
    uint8_t *bytes;
    size_t length;
    bool failed;
};

static uint8_t *extend(struct message *message, size_t size) {
    if (!MEMSCOPE_ARRAY_RESERVE(message->bytes, message->length + size)) {
        message->failed = true;
        return NULL;
    }
    message->length += size;
    return message->bytes + message->length - size;
}

static size_t encode(uint64_t number, uint8_t *into) {
    size_t length = 0;

    for (; number >= 0x80; number >>= 7)
        into[length++] = (uint8_t)(number | 0x80);
    into[length++] = (uint8_t)number;
    return length;
}

static void put_varint(struct message *message, uint64_t number) {
    uint8_t bytes[10];
    size_t length = encode(number, bytes);
    uint8_t *into = extend(message, length);

    if (into != NULL)
        memcpy(into, bytes, length);
}

static void put_number(struct message *message, unsigned field, uint64_t number) {
    put_varint(message, field << 3 | VARINT);
    put_varint(message, number);
}

static void put_bytes(struct message *message, unsigned field, const void *bytes, size_t size) {
    uint8_t *into;

    put_varint(message, field << 3 | BYTES);
    put_varint(message, size);
    into = extend(message, size);
    if (into != NULL && size > 0)
        memcpy(into, bytes, size);
}

static void put_packed(struct message *message, unsigned field, const struct message *numbers) {
    if (numbers->length > 0)
        put_bytes(message, field, numbers->bytes, numbers->length);
}

static void put_message(struct message *message, unsigned field, const struct message *inner) {
    put_bytes(message, field, inner->bytes, inner->length);
}

/* ---- the writer ------------------------------------------------------------------------------------------------ */

struct writer {
    const struct memscope_heap_dump *dump;
    struct memscope_heap_graph *graph;
    struct memscope_dump_output *output;
    struct message part; /* the part of the graph that is not written yet */
    struct message item, text, fields, references, internal, packet;
    uint8_t *known_types, *known_fields; /* one bit per number */
    uint64_t part_index;
};

/* An object's id in the file: not 0, and a short varint for a slot that is near BasicObject. */
static uint64_t id_of(const struct writer *writer, uint32_t node) {
    int64_t id = (int32_t)memscope_heap_dump_id_of(writer->dump, node);

    return id > 0 ? (uint64_t)id * 2 : (uint64_t)-id * 2 - 1;
}

/* A text field must be UTF-8. */
static void put_text(struct writer *writer, struct message *message, unsigned field, struct memscope_text text) {
    writer->text.length = 0;
    for (size_t at = 0; at < text.length;) {
        size_t bytes = memscope_dump_utf8_length(text.start + at, text.length - at);
        uint8_t *into = extend(&writer->text, bytes > 0 ? bytes : 3);

        if (into == NULL)
            return;
        memcpy(into, bytes > 0 ? text.start + at : "\xef\xbf\xbd", bytes > 0 ? bytes : 3);
        at += bytes > 0 ? bytes : 1;
    }
    put_message(message, field, &writer->text);
}

/* Returns true for a number that was not seen before, and records it. */
static bool is_new(struct writer *writer, uint8_t **known, uint64_t number) {
    uint8_t bit = (uint8_t)(1 << (number & 7));

    if (!MEMSCOPE_ARRAY_RESERVE(*known, number / 8 + 1)) {
        writer->part.failed = true;
        return false;
    }
    if ((*known)[number / 8] & bit)
        return false;
    (*known)[number / 8] |= bit;
    return true;
}

static bool has_failed(struct writer *writer) {
    if (writer->part.failed || writer->item.failed || writer->text.failed || writer->fields.failed ||
        writer->references.failed || writer->internal.failed || writer->packet.failed)
        writer->output->error = ENOMEM;
    return writer->output->error != 0;
}

/* ---- packets --------------------------------------------------------------------------------------------------- */

/* Trace.packet = 1. TracePacket: timestamp = 8, trusted_packet_sequence_id = 10, and the field of its content */
static void put_packet(struct writer *writer, unsigned field, const struct message *content) {
    uint8_t head[11] = {1 << 3 | BYTES};
    size_t length;

    writer->packet.length = 0;
    put_number(&writer->packet, 8, writer->dump->time_ns);
    put_number(&writer->packet, 10, SEQUENCE);
    put_message(&writer->packet, field, content);
    length = 1 + encode(writer->packet.length, head + 1);
    if (has_failed(writer))
        return;
    memscope_dump_put(writer->output, head, length);
    memscope_dump_put(writer->output, writer->packet.bytes, writer->packet.length);
}

/* Perfetto shows a heap graph only within a process, and takes pid 0 for the kernel's idle process. */
static uint32_t shown_pid(const struct writer *writer) {
    return writer->dump->pid == 0 ? 1 : writer->dump->pid;
}

/* TracePacket.process_tree = 2, ProcessTree.processes = 1: pid = 1, cmdline = 3 */
static void put_process(struct writer *writer) {
    const char *name = writer->dump->pid == 0 ? "ruby (converted: pid not known)" : "ruby";

    put_number(&writer->item, 1, shown_pid(writer));
    put_text(writer, &writer->item, 3, memscope_text_of(name));
    put_message(&writer->fields, 1, &writer->item);
    put_packet(writer, 2, &writer->fields);
}

/* TracePacket.heap_graph = 56. HeapGraph: pid = 1, continued = 5, index = 6 */
static void put_part(struct writer *writer, bool last) {
    put_number(&writer->part, 1, shown_pid(writer));
    if (!last)
        put_number(&writer->part, 5, 1);
    put_number(&writer->part, 6, writer->part_index++);
    put_packet(writer, 56, &writer->part);
    writer->part.length = 0;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

/* HeapGraph.types = 9: id = 1, class_name = 3, kind = 7 */
static uint64_t type_of(struct writer *writer, uint32_t node) {
    uint32_t label = memscope_heap_dump_label(writer->dump, node);

    if (!is_new(writer, &writer->known_types, label))
        return (uint64_t)label + 1;
    writer->item.length = 0;
    put_number(&writer->item, 1, (uint64_t)label + 1);
    put_text(writer, &writer->item, 3, memscope_names_get(&writer->graph->names, label));
    put_number(&writer->item, 7, KIND_ARRAY);
    put_message(&writer->part, 9, &writer->item);
    return (uint64_t)label + 1;
}

static void put_field_name(struct writer *writer, struct message *message, memscope_edge_name edge) {
    static const char *const fixed[16] = {
        [MEMSCOPE_EDGE_CLASS] = "<class>", [MEMSCOPE_EDGE_INDEX] = "[]", [MEMSCOPE_EDGE_KEY] = "<key>"};
    enum memscope_edge_kind kind = MEMSCOPE_EDGE_KIND(edge);
    uint32_t name = MEMSCOPE_EDGE_NUMBER(edge);
    struct memscope_text text = memscope_text_of(kind == MEMSCOPE_EDGE_LOCAL && name == 0 ? "<local>" : fixed[kind]);
    char plain[256];

    if (kind == MEMSCOPE_EDGE_VALUE)
        name = memscope_heap_dump_compose(writer->dump, "[key:", name, "]");
    if (text.start == NULL)
        text = memscope_names_get(&writer->graph->names, name);
    text.length = text.length > sizeof plain ? sizeof plain : text.length;
    for (size_t index = 0; index < text.length; index++)
        plain[index] = (char)(text.start[index] == ' ' ? '_' : text.start[index]);
    put_text(writer, message, 2, (struct memscope_text){plain, text.length});
}

/* HeapGraph.field_names = 4, InternedString: iid = 1, str = 2. One name for all elements of Arrays and Structs. */
static uint64_t field_of(struct writer *writer, memscope_edge_name edge) {
    if (MEMSCOPE_EDGE_KIND(edge) == MEMSCOPE_EDGE_INDEX)
        edge = MEMSCOPE_EDGE_INDEX;
    if (is_new(writer, &writer->known_fields, edge)) {
        writer->item.length = 0;
        put_number(&writer->item, 1, edge);
        put_field_name(writer, &writer->item, edge);
        put_message(&writer->part, 4, &writer->item);
    }
    return edge;
}

/* ---- objects --------------------------------------------------------------------------------------------------- */

static void gather_references(struct writer *writer, uint32_t node) {
    const struct memscope_heap_graph *graph = writer->graph;

    writer->fields.length = writer->references.length = writer->internal.length = 0;
    for (uint32_t edge = graph->first_edge[node]; edge < graph->first_edge[node + 1]; edge++) {
        memscope_edge_name name = memscope_graph_edge_name(graph, edge);
        uint64_t to = id_of(writer, graph->edges[edge]);

        if (MEMSCOPE_EDGE_KIND(name) == MEMSCOPE_EDGE_INTERNAL) {
            put_varint(&writer->internal, to);
            continue;
        }
        put_varint(&writer->fields, field_of(writer, name));
        put_varint(&writer->references, to);
    }
}

/*
 * HeapGraph.objects = 2: id = 1, type_id = 2, self_size = 3, reference_field_id = 4, reference_object_id = 5,
 * heap_type_delta = 9, runtime_internal_object_id = 10
 */
static void put_object(struct writer *writer, uint32_t node) {
    bool first = writer->part.length == 0;
    uint64_t type = type_of(writer, node);

    gather_references(writer, node);
    writer->item.length = 0;
    put_number(&writer->item, 1, id_of(writer, node));
    put_number(&writer->item, 2, type);
    put_number(&writer->item, 3, memscope_heap_dump_bytes(writer->dump, node));
    put_packed(&writer->item, 4, &writer->fields);
    put_packed(&writer->item, 5, &writer->references);
    if (first)
        put_number(&writer->item, 9, HEAP_TYPE_APP);
    put_packed(&writer->item, 10, &writer->internal);
    put_message(&writer->part, 2, &writer->item);
}

/* ---- roots ----------------------------------------------------------------------------------------------------- */

/* HeapGraphRoot.Type. If an object is a root of several types, Perfetto prefers STICKY_CLASS, then JNI_GLOBAL. */
static unsigned root_type_of(const char *category) {
    static const struct {
        const char *category;
        unsigned type;
    } types[] = {{"vm", 13},        {"machine_context", 4}, {"global_tbl", 5},   {"global_list", 1},
                 {"end_proc", 1},   {"global_symbols", 9},  {"symbols", 9},      {"finalizers", 10},
                 {"object_id", 13}, {"trace_func", 11},     {"main_ractor", 13}, {"yjit", 13},
                 {"weak", 12}};

    for (size_t index = 0; index < sizeof types / sizeof *types; index++)
        if (strcmp(types[index].category, category) == 0)
            return types[index].type;
    return 0;
}

/* HeapGraph.roots = 7: object_ids = 1, root_type = 2 */
static void put_roots(struct writer *writer, uint32_t category) {
    uint32_t node = memscope_graph_category_node(writer->graph, category);

    writer->references.length = writer->item.length = 0;
    for (uint32_t edge = writer->graph->first_edge[node]; edge < writer->graph->first_edge[node + 1]; edge++)
        put_varint(&writer->references, id_of(writer, writer->graph->edges[edge]));
    put_packed(&writer->item, 1, &writer->references);
    put_number(&writer->item, 2, root_type_of(writer->graph->categories[category]));
    put_message(&writer->part, 7, &writer->item);
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

void memscope_perfetto_write(const struct memscope_heap_dump *dump, struct memscope_dump_output *output) {
    struct writer writer = {.dump = dump, .graph = dump->graph, .output = output};
    struct message *messages[] = {&writer.part,       &writer.item,     &writer.text,  &writer.fields,
                                  &writer.references, &writer.internal, &writer.packet};

    put_process(&writer);
    for (uint32_t node = 0; node < dump->graph->slot_count && !has_failed(&writer); node++) {
        if (dump->graph->type[node] == 0)
            continue;
        put_object(&writer, node);
        if (writer.part.length >= PART)
            put_part(&writer, false);
    }
    for (uint32_t category = 0; category < dump->graph->category_count; category++)
        put_roots(&writer, category);
    put_part(&writer, true);
    for (size_t index = 0; index < sizeof messages / sizeof(void *); index++)
        memscope_array_unmap(messages[index]->bytes);
    memscope_arrays_unmap(writer.known_types, writer.known_fields);
}
