#include "dump/objspace_graph.h"

#include "base/mapped_array.h"
#include "base/range.h"
#include "dump/objspace_line.h"
#include "graph/graph_builder.h"

#include <string.h>

/* Maximum superclasses to follow, since a dump may have cycles. */
#define ANCESTORS 64

/* ---- classes --------------------------------------------------------------------------------------------------- */

/* The line of the class at this address, NULL if there is none. */
static const struct memscope_class_line *class_at(const struct memscope_objspace_reader *reader, uint64_t address) {
    const struct memscope_class_line *list = reader->classes;
    uint32_t node = address == 0 ? MEMSCOPE_NO_NODE : memscope_address_find(&reader->index, address);
    size_t at = memscope_number_position(&list->node, reader->class_count, sizeof *list, node);

    return at < reader->class_count && list[at].node == node ? &list[at] : NULL;
}

/*
 * Labels classes as in a dump of this process: a singleton class is named after the first class above it that is not a
 * singleton class, an anonymous class after the first class above it that has a name. (Before Ruby 3.1, dumps state
 * neither superclasses nor singleton classes.)
 */
static uint32_t label_of_class(struct memscope_objspace_reader *reader, const struct memscope_class_line *line) {
    struct memscope_names *names = &reader->graph.names;
    bool anonymous = false;

    for (int above = 0; above < ANCESTORS && line != NULL && line->name == 0; above++) {
        anonymous |= !line->singleton;
        line = class_at(reader, line->superclass);
    }
    if (line == NULL || line->name == 0)
        return memscope_names_add(names, "anonymous", 9);
    return anonymous
               ? memscope_names_add_composed(names, "", memscope_names_get(names, line->name), " (anonymous subclass)")
               : line->name;
}

static uint32_t label_of_type(struct memscope_objspace_reader *reader, uint8_t type, const char *after) {
    return memscope_names_add_composed(&reader->graph.names, "T_", memscope_text_of(memscope_objspace_type_name(type)),
                                       after);
}

static uint32_t label_of_instances(struct memscope_objspace_reader *reader, uint64_t address, uint8_t type) {
    const struct memscope_class_line *line = class_at(reader, address);

    return line == NULL ? label_of_type(reader, type, " (unknown class)") : label_of_class(reader, line);
}

/*
 * The address of a node's class, 0 if it has none. Ruby 3.1 states a class for an imemo or iclass that is not a class.
 */
static uint64_t class_address(const struct memscope_objspace_reader *reader, uint32_t node) {
    uint8_t type = reader->graph.type[node];

    return type == MEMSCOPE_TYPE_IMEMO || type == MEMSCOPE_TYPE_ICLASS ? 0 : reader->class_addresses[node];
}

/* A cache of the labels of instances, by class. */
#define KNOWN_LABELS 256
struct known_label {
    uint64_t class;
    uint32_t label;
};

/* So far, the label of a T_DATA is the name of its type, which stays if its class is plain Object (class_names.h). */
static void label_objects(struct memscope_objspace_reader *reader) {
    uint32_t object = memscope_names_add(&reader->graph.names, "Object", 6);
    uint32_t *labels = reader->graph.node_class;
    struct known_label known[KNOWN_LABELS] = {{0, 0}}, *found;

    for (uint32_t node = 0; node < reader->object_count; node++) {
        uint64_t address = class_address(reader, node);
        uint8_t type = reader->graph.type[node];

        if (address == 0) {
            if (type != MEMSCOPE_TYPE_IMEMO && (type != MEMSCOPE_TYPE_DATA || labels[node] == 0))
                labels[node] = label_of_type(reader, type, "");
            continue;
        }
        found = &known[(address >> reader->index.shift) % KNOWN_LABELS];
        if (found->class != address)
            *found = (struct known_label){address, label_of_instances(reader, address, type)};
        if (type != MEMSCOPE_TYPE_DATA || labels[node] == 0 || found->label != object)
            labels[node] = found->label;
    }
}

static bool name_modules(struct memscope_objspace_reader *reader) {
    if (!MEMSCOPE_ARRAY_RESERVE(reader->modules, reader->class_count))
        return false;
    for (uint32_t index = 0; index < reader->class_count; index++) {
        const struct memscope_class_line *line = &reader->classes[index];

        reader->modules[index] = (struct memscope_module_name){.node = line->node,
                                                               .name = label_of_class(reader, line),
                                                               .singleton = line->singleton,
                                                               .named = !line->singleton && line->name != 0};
    }
    reader->dump.modules = reader->modules;
    reader->dump.module_count = reader->class_count;
    return true;
}

/* ---- lasting ids ----------------------------------------------------------------------------------------------- */

static uint64_t address_of_basic_object(const struct memscope_objspace_reader *reader) {
    uint32_t name = memscope_names_find(&reader->graph.names, "BasicObject", 11);

    for (uint32_t index = 0; name != 0 && index < reader->class_count; index++)
        if (!reader->classes[index].singleton && reader->classes[index].name == name)
            return reader->addresses[reader->classes[index].node];
    return 0;
}

static bool number_objects(struct memscope_objspace_reader *reader) {
    uint64_t base = address_of_basic_object(reader);

    if (base == 0)
        return true;
    if (!MEMSCOPE_ARRAY_RESERVE(reader->ids, reader->object_count))
        return false;
    for (uint32_t node = 0; node < reader->object_count; node++) {
        reader->ids[node] = memscope_heap_dump_id((int64_t)(reader->addresses[node] - base));
        if (reader->ids[node] == 0)
            return true;
    }
    reader->dump.ids = reader->ids;
    return true;
}

/* ---- edges ----------------------------------------------------------------------------------------------------- */

/* References to prefetch ahead. */
#define AHEAD 12

static inline void add_edge(struct memscope_objspace_reader *reader, struct memscope_graph_builder *builder,
                            uint64_t address, memscope_edge_name name) {
    uint32_t node = memscope_address_find(&reader->index, address);

    if (node == MEMSCOPE_NO_NODE)
        reader->missing_references++;
    else
        memscope_graph_to(builder, node, name);
}

/*
 * The class that Ruby 3.1 states for an imemo may not be an object. If an object also refers to its class in another
 * way, both references become one edge, named MEMSCOPE_EDGE_CLASS.
 */
static void add_class_edge(struct memscope_objspace_reader *reader, struct memscope_graph_builder *builder,
                           uint32_t node) {
    uint64_t address = reader->class_addresses[node];

    if (address != 0 && (reader->graph.type[node] != MEMSCOPE_TYPE_IMEMO ||
                         memscope_address_find(&reader->index, address) != MEMSCOPE_NO_NODE))
        add_edge(reader, builder, address,
                 class_address(reader, node) != 0 ? MEMSCOPE_EDGE_CLASS : MEMSCOPE_EDGE_INTERNAL);
}

static void add_edges(struct memscope_objspace_reader *reader, struct memscope_graph_builder *builder) {
    const struct memscope_named_reference *named = reader->named_references, *end = named + reader->named_count;
    uint64_t reference = 0, end_of_node = 0;

    for (uint32_t node = 0; node < reader->object_count; node++) {
        uint64_t class_of_node = class_address(reader, node);

        memscope_graph_from(builder, node);
        end_of_node += reader->reference_counts[node];
        for (; reference < end_of_node; reference++) {
            uint64_t address = reader->references[reference];
            bool is_named = named < end && named->reference == reference;

            if (reference + AHEAD < reader->reference_count)
                __builtin_prefetch(memscope_address_place(&reader->index, reader->references[reference + AHEAD]));
            if (address != class_of_node)
                add_edge(reader, builder, address, is_named ? named->name : MEMSCOPE_EDGE_INTERNAL);
            named += is_named;
        }
        add_class_edge(reader, builder, node);
    }
}

/* Without roots, all objects in the dump count as reachable, since garbage cannot be identified. */
static void add_roots(struct memscope_objspace_reader *reader, struct memscope_graph_builder *builder) {
    for (uint64_t index = 0; index < reader->root_count; index++) {
        uint32_t node = memscope_address_find(&reader->index, reader->roots[index].address);

        if (node == MEMSCOPE_NO_NODE)
            reader->missing_references++;
        else
            memscope_graph_root_to(builder, reader->category_text[reader->roots[index].category], node);
    }
    for (uint32_t node = 0; !reader->has_roots && node < reader->object_count; node++)
        memscope_graph_root_to(builder, "dump", node);
}

/* ---- the graph ------------------------------------------------------------------------------------------------- */

static enum memscope_status resolve(struct memscope_objspace_reader *reader) {
    struct memscope_graph_builder builder;
    enum memscope_status status = memscope_address_index_open(&reader->index, reader->addresses, reader->object_count);

    if (status != MEMSCOPE_OK)
        return status;
    label_objects(reader);
    if ((reader->is_converted && !number_objects(reader)) || !name_modules(reader))
        return MEMSCOPE_NO_MEMORY;
    if (!reader->tells_slot_bytes) {
        memscope_array_unmap(reader->graph.slot_bytes);
        reader->graph.slot_bytes = NULL;
    }
    status = memscope_graph_begin(&builder, &reader->graph, reader->object_count,
                                  reader->reference_count + reader->object_count, MEMSCOPE_GRAPH_EDGE_NAMES);
    if (status != MEMSCOPE_OK)
        return status;
    add_edges(reader, &builder);
    add_roots(reader, &builder);
    return memscope_graph_finish(&builder);
}

enum memscope_status memscope_objspace_graph_make(struct memscope_objspace_reader *reader) {
    if (reader->status != MEMSCOPE_OK)
        return reader->status;
    if (reader->object_count == 0)
        return MEMSCOPE_MALFORMED;
    reader->dump.graph = &reader->graph;
    reader->status = resolve(reader);
    memscope_arrays_unmap(reader->references, reader->named_references, reader->class_addresses,
                          reader->reference_counts);
    reader->references = reader->class_addresses = NULL;
    reader->named_references = NULL;
    reader->reference_counts = NULL;
    if (!reader->is_compared) {
        memscope_address_index_close(&reader->index);
        memscope_array_unmap(reader->addresses);
        reader->addresses = NULL;
    }
    return reader->status;
}

void memscope_objspace_graph_drop_edges(struct memscope_objspace_reader *reader) {
    struct memscope_heap_graph *graph = &reader->graph;

    memscope_arrays_unmap(graph->edges, graph->edge_names, graph->first_edge);
    graph->edges = graph->edge_names = graph->first_edge = NULL;
}
