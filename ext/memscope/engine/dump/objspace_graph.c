#include "dump/objspace_graph.h"

#include <stdio.h>
#include <string.h>

#include "dump/objspace_line.h"

/* How many superclasses to follow: a dump may have cycles. */
#define ANCESTORS 64

/* ---- classes --------------------------------------------------------------------------------------------------- */

/* The line of the class at this address; NULL if there is none. */
static const struct memscope_class_line *class_at(const struct memscope_objspace_reader *reader, uint64_t address) {
    const struct memscope_class_line *list = reader->classes.list;
    uint32_t node = memscope_address_find(&reader->index, address), low = 0, high = reader->class_count;

    if (address == 0 || node == MEMSCOPE_NO_NODE)
        return NULL;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (list[middle].node < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low < reader->class_count && list[low].node == node ? &list[low] : NULL;
}

static uint32_t add_name(struct memscope_objspace_reader *reader, const char *before, const char *text, size_t length,
                         const char *after) {
    size_t first = strlen(before), last = strlen(after);
    char name[1024];

    length = length > sizeof name - 1 - first - last ? sizeof name - 1 - first - last : length;
    snprintf(name, sizeof name, "%s%.*s%s", before, (int)length, text, after);
    return memscope_names_add(&reader->names, name, strlen(name));
}

/*
 * As in a dump of this process: a singleton class is named after the first class above it that is not a singleton
 * class, an anonymous class after the first class above it that has a name. (Before Ruby 3.1, dumps state neither
 * superclasses nor which classes are singleton classes.)
 */
static uint32_t label_of_class(struct memscope_objspace_reader *reader, const struct memscope_class_line *line) {
    bool anonymous = false;
    const char *name;
    size_t length;

    for (int above = 0; above < ANCESTORS && line != NULL && line->name == 0; above++) {
        anonymous |= !line->singleton;
        line = class_at(reader, line->superclass);
    }
    if (line == NULL || line->name == 0)
        return memscope_names_add(&reader->names, "anonymous", 9);
    name = memscope_names_get(&reader->names, line->name, &length);
    return anonymous ? add_name(reader, "", name, length, " (anonymous subclass)") : line->name;
}

static uint32_t label_of_type(struct memscope_objspace_reader *reader, uint8_t type, const char *after) {
    const char *name = memscope_objspace_type_name(type);

    return add_name(reader, "T_", name, strlen(name), after);
}

static uint32_t label_of_instances(struct memscope_objspace_reader *reader, uint64_t address, uint8_t type) {
    const struct memscope_class_line *line = class_at(reader, address);

    return line == NULL ? label_of_type(reader, type, " (unknown class)") : label_of_class(reader, line);
}

/*
 * The address of a node's class; 0 if it has none. What Ruby 3.1 states as the class of an imemo or iclass is no class.
 */
static uint64_t class_address(const struct memscope_objspace_reader *reader, uint32_t node, uint64_t references_end) {
    uint8_t type = ((const uint8_t *)reader->types.list)[node];

    if (!(type & MEMSCOPE_HAS_CLASS) || (type & ~MEMSCOPE_HAS_CLASS) == MEMSCOPE_TYPE_IMEMO ||
        (type & ~MEMSCOPE_HAS_CLASS) == MEMSCOPE_TYPE_ICLASS)
        return 0;
    return ((const uint64_t *)reader->references.list)[references_end - 1];
}

/* A cache of the labels of instances, by class. */
#define KNOWN_LABELS 256
struct known_label {
    uint64_t class;
    uint32_t label;
};

/* So far, the label of a T_DATA is the name of its type, which stays if its class says nothing (class_names.h). */
static void label_objects(struct memscope_objspace_reader *reader) {
    const uint64_t *first = reader->first_references.list;
    uint32_t object = memscope_names_add(&reader->names, "Object", 6);
    uint32_t *labels = reader->labels.list;
    struct known_label known[KNOWN_LABELS] = {{0, 0}}, *found;

    for (uint32_t node = 0; node < reader->object_count; node++) {
        uint64_t address = class_address(reader, node, first[node + 1]);
        uint8_t type = ((const uint8_t *)reader->types.list)[node] & (uint8_t)~MEMSCOPE_HAS_CLASS;

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

/* Writes the names over the lines of classes, which are larger. Makes all labels before it overwrites a line. */
static void keep_module_names(struct memscope_objspace_reader *reader, struct memscope_heap_dump *dump) {
    struct memscope_class_line *lines = reader->classes.list;
    struct memscope_module_name *modules = reader->classes.list;

    for (uint32_t index = 0; index < reader->class_count; index++)
        lines[index].label = label_of_class(reader, &lines[index]);
    for (uint32_t index = 0; index < reader->class_count; index++) {
        struct memscope_class_line line = lines[index];

        modules[index] = (struct memscope_module_name){.node = line.node,
                                                       .name = line.label,
                                                       .singleton = line.singleton,
                                                       .named = !line.singleton && line.name != 0};
    }
    dump->modules = modules;
    dump->module_count = reader->class_count;
}

/* ---- lasting ids ----------------------------------------------------------------------------------------------- */

static uint64_t address_of_basic_object(const struct memscope_objspace_reader *reader) {
    const struct memscope_class_line *lines = reader->classes.list;
    const uint64_t *addresses = reader->addresses.list;

    for (uint32_t index = 0; index < reader->class_count; index++) {
        size_t length;
        const char *name = memscope_names_get(&reader->names, lines[index].name, &length);

        if (!lines[index].singleton && length == 11 && memcmp(name, "BasicObject", 11) == 0)
            return addresses[lines[index].node];
    }
    return 0;
}

static enum memscope_status number_objects(struct memscope_objspace_reader *reader, struct memscope_heap_dump *dump) {
    const uint64_t *addresses = reader->addresses.list;
    uint64_t base = address_of_basic_object(reader);
    uint32_t *ids;

    if (base == 0)
        return MEMSCOPE_OK;
    if (!memscope_growing_array_reserve_items(&reader->ids, reader->object_count, sizeof *ids))
        return MEMSCOPE_NO_MEMORY;
    ids = reader->ids.list;
    for (uint32_t node = 0; node < reader->object_count; node++) {
        ids[node] = memscope_heap_dump_id((int64_t)(addresses[node] - base));
        if (ids[node] == 0)
            return MEMSCOPE_OK;
    }
    dump->ids = ids;
    return MEMSCOPE_OK;
}

/* ---- edges ----------------------------------------------------------------------------------------------------- */

/* How many references ahead to prefetch. */
#define AHEAD 12

struct edges {
    struct memscope_objspace_reader *reader;
    uint32_t *list;
    memscope_edge_name *names;
    uint32_t *seen; /* by object: the last node that was found to refer to it, plus 1 */
    uint32_t count;
    uint64_t named; /* the next of the named references */
};

static inline void add_edge(struct edges *edges, uint32_t from, uint64_t address, memscope_edge_name name) {
    uint32_t node = memscope_address_find(&edges->reader->index, address);

    if (node == MEMSCOPE_NO_NODE) {
        edges->reader->missing_references++;
        return;
    }
    if (edges->seen[node] == from + 1)
        return;
    edges->seen[node] = from + 1;
    edges->names[edges->count] = name;
    edges->list[edges->count++] = node;
}

static inline memscope_edge_name name_of_reference(struct edges *edges, uint64_t reference) {
    const struct memscope_named_reference *list = edges->reader->named_references.list;

    if (edges->named == edges->reader->named_count || list[edges->named].reference != reference)
        return MEMSCOPE_EDGE_INTERNAL;
    return list[edges->named++].name;
}

/*
 * Edges overwrite the references. An edge is half the size of a reference, so each reference is read before it is
 * overwritten. If an object also refers to its class in another way, both references become one edge, named
 * MEMSCOPE_EDGE_CLASS.
 */
static void add_object_edges(struct edges *edges, uint32_t node, uint64_t from, uint64_t to, uint64_t class_of_node) {
    const uint64_t *references = edges->reader->references.list;
    uint64_t all = edges->reader->reference_count;
    bool is_imemo = ((const uint8_t *)edges->reader->types.list)[node] == (MEMSCOPE_HAS_CLASS | MEMSCOPE_TYPE_IMEMO);

    /* The class that Ruby 3.1 states for an imemo need not be an object. */
    if (is_imemo && memscope_address_find(&edges->reader->index, references[to - 1]) == MEMSCOPE_NO_NODE)
        to--;
    for (uint64_t index = from; index < to; index++) {
        uint64_t address = references[index];

        if (index + AHEAD < all)
            __builtin_prefetch(memscope_address_place(&edges->reader->index, references[index + AHEAD]));
        memscope_edge_name name = name_of_reference(edges, index);

        if (address != class_of_node)
            add_edge(edges, node, address, name);
    }
    if (class_of_node != 0)
        add_edge(edges, node, class_of_node, MEMSCOPE_EDGE_CLASS);
}

static void add_category_edges(struct edges *edges, uint32_t category, uint32_t node) {
    const struct memscope_root_line *lines = edges->reader->root_lines.list;
    const uint64_t *references = edges->reader->root_references.list;

    for (uint32_t line = 0; line < edges->reader->root_line_count; line++)
        for (uint32_t index = 0; lines[line].category == category && index < lines[line].count; index++)
            add_edge(edges, node, references[lines[line].first + index], MEMSCOPE_EDGE_INTERNAL);
}

/* Without roots, whatever is in the dump counts as reachable: nothing says what is garbage. */
static void add_all_objects(struct edges *edges, uint32_t node) {
    for (uint32_t object = 0; object < edges->reader->object_count; object++)
        add_edge(edges, node, ((const uint64_t *)edges->reader->addresses.list)[object], MEMSCOPE_EDGE_INTERNAL);
}

static uint32_t count_categories(const struct memscope_objspace_reader *reader) {
    uint32_t count = 0;

    while (count < MEMSCOPE_ROOT_CATEGORIES && *reader->category_text[count] != '\0')
        count++;
    return count;
}

/* Extends the arrays that have one element per object to one element per node: 0 for the nodes of roots. */
static bool make_room_for_nodes(struct memscope_objspace_reader *reader, uint32_t nodes) {
    return memscope_growing_array_reserve_items(&reader->types, nodes, 1) &&
           memscope_growing_array_reserve_items(&reader->labels, nodes, sizeof(uint32_t)) &&
           memscope_growing_array_reserve_items(&reader->bytes_of, nodes, sizeof(uint32_t)) &&
           memscope_growing_array_reserve_items(&reader->slot_bytes, nodes, sizeof(uint32_t));
}

static bool make_room_for_edges(struct memscope_objspace_reader *reader, uint32_t nodes) {
    uint64_t roots = memscope_objspace_has_roots(reader) ? reader->root_reference_count : reader->object_count;
    uint64_t edges = reader->reference_count + roots + MEMSCOPE_ROOT_CATEGORIES;

    return memscope_growing_array_reserve_items(&reader->references, edges, sizeof(uint32_t)) &&
           memscope_growing_array_reserve_items(&reader->edge_names, edges, sizeof(memscope_edge_name)) &&
           memscope_growing_array_reserve_items(&reader->first_references, (uint64_t)nodes + 1, sizeof(uint32_t)) &&
           memscope_growing_array_reserve_items(&reader->seen, reader->object_count, sizeof(uint32_t));
}

/* first_edge overwrites first_references, as the edges overwrite the references. */
static void add_all_edges(struct edges *edges, struct memscope_heap_graph *graph) {
    struct memscope_objspace_reader *reader = edges->reader;
    const uint64_t *first = reader->first_references.list;
    uint64_t from = 0;
    uint32_t *first_edge = reader->first_references.list;

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        uint64_t to = first[node + 1], class_of_node = class_address(reader, node, to);

        first_edge[node] = edges->count;
        add_object_edges(edges, node, from, to, class_of_node);
        from = to;
    }
    for (uint32_t category = 0; category < graph->category_count; category++) {
        uint32_t node = memscope_graph_category_node(graph, category);

        first_edge[node] = edges->count;
        if (memscope_objspace_has_roots(reader))
            add_category_edges(edges, category, node);
        else
            add_all_objects(edges, node);
    }
    first_edge[memscope_graph_root(graph)] = edges->count;
    for (uint32_t category = 0; category < graph->category_count; category++) {
        edges->names[edges->count] = MEMSCOPE_EDGE_INTERNAL;
        edges->list[edges->count++] = memscope_graph_category_node(graph, category);
    }
    first_edge[graph->node_count] = edges->count;
}

/* ---- the graph ------------------------------------------------------------------------------------------------- */

static void strip_types(struct memscope_objspace_reader *reader) {
    uint8_t *types = reader->types.list;

    for (uint32_t node = 0; node < reader->object_count; node++)
        types[node] &= (uint8_t)~MEMSCOPE_HAS_CLASS;
}

static void set_graph(struct memscope_objspace_reader *reader, const struct edges *edges,
                      struct memscope_heap_graph *graph) {
    strip_types(reader);
    graph->object_count = graph->slot_count;
    graph->edge_count = edges->count;
    graph->type = reader->types.list;
    graph->node_class = reader->labels.list;
    graph->slot_bytes = reader->tells_slot_bytes ? reader->slot_bytes.list : NULL;
    graph->bytes = reader->bytes_of.list;
    graph->first_edge = reader->first_references.list;
    graph->edges = edges->list;
    graph->edge_names = edges->names;
    for (uint32_t category = 0; category < graph->category_count; category++)
        graph->categories[category] = reader->category_text[category];
    graph->names = reader->names;
    reader->graph = graph;
}

static enum memscope_status resolve(struct memscope_objspace_reader *reader, struct memscope_heap_graph *graph,
                                    struct memscope_heap_dump *dump) {
    struct edges edges = {.reader = reader};
    enum memscope_status status =
        memscope_address_index_open(&reader->index, reader->addresses.list, reader->object_count);

    ((uint64_t *)reader->first_references.list)[reader->object_count] = reader->reference_count;
    if (status != MEMSCOPE_OK)
        return status;
    label_objects(reader);
    status = number_objects(reader, dump);
    keep_module_names(reader, dump);
    if (status != MEMSCOPE_OK)
        return status;
    if (!make_room_for_nodes(reader, graph->node_count) || !make_room_for_edges(reader, graph->node_count))
        return MEMSCOPE_NO_MEMORY;
    edges.list = reader->references.list;
    edges.names = reader->edge_names.list;
    edges.seen = reader->seen.list;
    add_all_edges(&edges, graph);
    set_graph(reader, &edges, graph);
    return MEMSCOPE_OK;
}

enum memscope_status memscope_objspace_graph_make(struct memscope_objspace_reader *reader,
                                                  struct memscope_heap_graph *graph, struct memscope_heap_dump *dump) {
    memset(graph, 0, sizeof *graph);
    memset(dump, 0, sizeof *dump);
    if (reader->status != MEMSCOPE_OK)
        return reader->status;
    if (reader->object_count == 0)
        return MEMSCOPE_MALFORMED;
    if (!memscope_objspace_has_roots(reader))
        memcpy(reader->category_text[0], "dump", sizeof "dump");
    graph->slot_count = reader->object_count;
    graph->category_count = count_categories(reader);
    graph->node_count = graph->slot_count + graph->category_count + 1;
    dump->graph = graph;
    reader->status = resolve(reader, graph, dump);
    memscope_growing_array_close(&reader->seen);
    if (!reader->is_compared) {
        memscope_address_index_close(&reader->index);
        memscope_growing_array_close(&reader->addresses);
    }
    return reader->status;
}

void memscope_objspace_graph_drop_edges(struct memscope_objspace_reader *reader) {
    memscope_growing_array_close(&reader->references);
    memscope_growing_array_close(&reader->edge_names);
    memscope_growing_array_close(&reader->first_references);
    if (reader->graph != NULL)
        reader->graph->edges = reader->graph->edge_names = reader->graph->first_edge = NULL;
}
