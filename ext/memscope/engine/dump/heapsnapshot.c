/*
 * V8's .heapsnapshot, as Chrome's DevTools load it: a JSON object whose parts must be in the order below. Node 0 is the
 * root, followed by the categories of roots and the objects. All children of the root are synthetic. If one were not,
 * DevTools would count the objects that it does not reach as system objects. Garbage has a root of its own. For the
 * types "object" and "native", DevTools show the node's name as its class.
 * https://github.com/ChromeDevTools/devtools-frontend, HeapSnapshot.ts
 */
#include "dump/heap_dump.h"

#include <errno.h>
#include <string.h>

#include "base/mapped_array.h"
#include "graph/shortest_paths.h"

#define NODE_FIELDS 7
#define KINDS 16 /* of names of edges */

enum node_type { HIDDEN, ARRAY, STRING, OBJECT, CODE, CLOSURE, REGEXP, NUMBER, NATIVE, SYNTHETIC };
enum edge_type { CONTEXT, ELEMENT, PROPERTY, INTERNAL, HIDDEN_EDGE, SHORTCUT, WEAK };

static const char meta[] =
    "{\"snapshot\":{\"meta\":{\"node_fields\":[\"type\",\"name\",\"id\",\"self_size\",\"edge_count\","
    "\"trace_node_id\",\"detachedness\"],\"node_types\":[[\"hidden\",\"array\",\"string\",\"object\",\"code\","
    "\"closure\",\"regexp\",\"number\",\"native\",\"synthetic\",\"concatenated string\",\"sliced string\",\"symbol\","
    "\"bigint\",\"object shape\"],\"string\",\"number\",\"number\",\"number\",\"number\",\"number\"],"
    "\"edge_fields\":[\"type\",\"name_or_index\",\"to_node\"],\"edge_types\":[[\"context\",\"element\",\"property\","
    "\"internal\",\"hidden\",\"shortcut\",\"weak\"],\"string_or_number\",\"node\"],"
    "\"trace_function_info_fields\":[\"function_id\",\"name\",\"script_name\",\"script_id\",\"line\",\"column\"],"
    "\"trace_node_fields\":[\"id\",\"function_info_index\",\"count\",\"size\",\"children\"],"
    "\"sample_fields\":[\"timestamp_us\",\"last_assigned_id\"],"
    "\"location_fields\":[\"object_index\",\"script_id\",\"line\",\"column\"]},\"node_count\":";

struct writer {
    const struct memscope_heap_dump *dump;
    struct memscope_heap_graph *graph;
    struct memscope_dump_output *output;
    struct memscope_shortest_paths paths;
    uint32_t *places;      /* by slot: index of its node in the file */
    uint32_t synthetic;    /* nodes that come first: the root, the categories, and one for any garbage */
    uint32_t fixed[KINDS]; /* names of edges without a name of their own, by kind, 0 for none */
    uint32_t last_key_class, last_key_name;
    bool begun; /* set if the next node or edge needs a comma */
};

static uint32_t add_name(const struct writer *writer, const char *text) {
    return memscope_names_add(&writer->graph->names, text, strlen(text));
}

static void put_numbers(struct writer *writer, const uint64_t *numbers, size_t count) {
    for (size_t index = 0; index < count; index++) {
        if (writer->begun)
            memscope_dump_put(writer->output, index == 0 ? ",\n" : ",", index == 0 ? 2 : 1);
        memscope_dump_put_decimal(writer->output, numbers[index]);
        writer->begun = true;
    }
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

static void put_node(struct writer *writer, enum node_type type, uint32_t name, uint32_t id, uint64_t bytes,
                     uint32_t edges) {
    const uint64_t numbers[NODE_FIELDS] = {type, name, id, bytes > UINT32_MAX ? UINT32_MAX : bytes, edges, 0, 0};

    put_numbers(writer, numbers, NODE_FIELDS);
}

/* The nodes of roots have even ids, objects have odd ids. */
static void put_roots(struct writer *writer) {
    const struct memscope_heap_graph *graph = writer->graph;

    put_node(writer, SYNTHETIC, add_name(writer, "(roots)"), 2, 0, writer->synthetic - 1);
    for (uint32_t category = 0; category < graph->category_count; category++) {
        uint32_t node = memscope_graph_category_node(graph, category);
        uint32_t name =
            memscope_heap_dump_compose(writer->dump, "(", add_name(writer, graph->categories[category]), " roots)");

        put_node(writer, SYNTHETIC, name, 4 + 2 * category, 0, graph->first_edge[node + 1] - graph->first_edge[node]);
    }
    if (writer->paths.garbage.count > 0)
        put_node(writer, SYNTHETIC, add_name(writer, "(garbage)"), 4 + 2 * graph->category_count, 0,
                 writer->paths.garbage.count);
}

static enum node_type node_type_of(uint8_t type) {
    switch (type) {
    case MEMSCOPE_TYPE_DATA:
        return NATIVE;
    case MEMSCOPE_TYPE_IMEMO:
    case MEMSCOPE_TYPE_ICLASS:
    case MEMSCOPE_TYPE_NODE:
        return CODE;
    default:
        return OBJECT;
    }
}

static void put_nodes(struct writer *writer) {
    const struct memscope_heap_graph *graph = writer->graph;

    put_roots(writer);
    for (uint32_t node = 0; node < graph->slot_count && writer->output->error == 0; node++)
        if (graph->type[node] != 0)
            put_node(writer, node_type_of(graph->type[node]), memscope_heap_dump_label(writer->dump, node),
                     memscope_heap_dump_id_of(writer->dump, node), memscope_heap_dump_bytes(writer->dump, node),
                     graph->first_edge[node + 1] - graph->first_edge[node]);
}

/* ---- edges ----------------------------------------------------------------------------------------------------- */

static void put_edge(struct writer *writer, enum edge_type type, uint32_t name_or_index, uint32_t place) {
    const uint64_t numbers[] = {type, name_or_index, (uint64_t)place * NODE_FIELDS};

    put_numbers(writer, numbers, 3);
}

static void put_root_edges(struct writer *writer) {
    const struct memscope_heap_graph *graph = writer->graph;

    for (uint32_t child = 1; child < writer->synthetic; child++)
        put_edge(writer, ELEMENT, child, child);
    for (uint32_t category = 0; category < graph->category_count; category++) {
        uint32_t node = memscope_graph_category_node(graph, category), first = graph->first_edge[node];

        for (uint32_t edge = first; edge < graph->first_edge[node + 1]; edge++)
            put_edge(writer, ELEMENT, edge - first, writer->places[graph->edges[edge]]);
    }
    for (uint32_t node = 0, index = 0; node < graph->slot_count; node++)
        if (graph->type[node] != 0 && !memscope_reaches(&writer->paths, node))
            put_edge(writer, ELEMENT, index++, writer->places[node]);
}

/* Consecutive values mostly have keys of one class. */
static uint32_t key_name(struct writer *writer, uint32_t class) {
    if (writer->last_key_name == 0 || writer->last_key_class != class) {
        writer->last_key_class = class;
        writer->last_key_name = memscope_heap_dump_compose(writer->dump, "[key: ", class, "]");
    }
    return writer->last_key_name;
}

static void put_named_edge(struct writer *writer, memscope_edge_name name, uint32_t place) {
    static const enum edge_type types[KINDS] = {
        [MEMSCOPE_EDGE_INTERNAL] = INTERNAL, [MEMSCOPE_EDGE_CLASS] = INTERNAL, [MEMSCOPE_EDGE_CONSTANT] = PROPERTY,
        [MEMSCOPE_EDGE_IVAR] = PROPERTY,     [MEMSCOPE_EDGE_CVAR] = PROPERTY,  [MEMSCOPE_EDGE_GLOBAL] = PROPERTY,
        [MEMSCOPE_EDGE_LOCAL] = CONTEXT,     [MEMSCOPE_EDGE_INDEX] = ELEMENT,  [MEMSCOPE_EDGE_KEY] = INTERNAL,
        [MEMSCOPE_EDGE_VALUE] = PROPERTY,    [MEMSCOPE_EDGE_THREAD] = INTERNAL};
    enum memscope_edge_kind kind = MEMSCOPE_EDGE_KIND(name);
    uint32_t number = MEMSCOPE_EDGE_NUMBER(name);

    if (kind == MEMSCOPE_EDGE_VALUE)
        number = key_name(writer, number);
    else if (writer->fixed[kind] != 0 && (kind != MEMSCOPE_EDGE_LOCAL || number == 0))
        number = writer->fixed[kind];
    put_edge(writer, types[kind], number, place);
}

static void put_edges(struct writer *writer) {
    const struct memscope_heap_graph *graph = writer->graph;
    uint32_t end = graph->first_edge[graph->slot_count];

    put_root_edges(writer);
    for (uint32_t edge = 0; edge < end && writer->output->error == 0; edge++)
        put_named_edge(writer, memscope_graph_edge_name(graph, edge), writer->places[graph->edges[edge]]);
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

/* A string's index is its name's number. Strings are written last, when all names are known. */
static void put_strings(struct writer *writer) {
    for (uint32_t number = 0; number < writer->graph->names.count && writer->output->error == 0; number++) {
        memscope_dump_put_text(writer->output, number == 0 ? "" : ",\n");
        memscope_dump_put_string(writer->output, memscope_names_get(&writer->graph->names, number));
    }
}

/*
 * Counts the graph's edges and, if there is garbage, the edge from the root to (garbage) and the edges from (garbage).
 */
static uint64_t count_edges(const struct writer *writer) {
    uint32_t garbage = writer->paths.garbage.count;

    return (uint64_t)writer->graph->edge_count + garbage + (garbage > 0);
}

static uint32_t place_objects(struct writer *writer) {
    uint32_t place = writer->synthetic;

    for (uint32_t node = 0; node < writer->graph->slot_count; node++)
        if (writer->graph->type[node] != 0)
            writer->places[node] = place++;
    return place;
}

static void put_all(struct writer *writer) {
    struct memscope_dump_output *output = writer->output;

    memscope_dump_put_text(output, meta);
    memscope_dump_put_decimal(output, place_objects(writer));
    memscope_dump_put_text(output, ",\"edge_count\":");
    memscope_dump_put_decimal(output, count_edges(writer));
    memscope_dump_put_text(output, ",\"trace_function_count\":0,\"extra_native_bytes\":0},\n\"nodes\":[");
    put_nodes(writer);
    memscope_dump_put_text(output, "],\n\"edges\":[");
    writer->begun = false;
    put_edges(writer);
    memscope_dump_put_text(output, "],\n\"trace_function_infos\":[],\n\"trace_tree\":[],\n\"samples\":[],\n"
                                   "\"locations\":[],\n\"strings\":[");
    put_strings(writer);
    memscope_dump_put_text(output, "]}\n");
}

static bool prepare(struct writer *writer) {
    static const struct memscope_search_last nothing;

    if (memscope_shortest_paths_find(&writer->paths, writer->graph, &nothing) != MEMSCOPE_OK)
        return false;
    writer->synthetic = 1 + writer->graph->category_count + (writer->paths.garbage.count > 0);
    writer->places = memscope_array_map(writer->graph->slot_count, sizeof *writer->places);
    return writer->places != NULL;
}

void memscope_heapsnapshot_write(const struct memscope_heap_dump *dump, struct memscope_dump_output *output) {
    struct writer writer = {.dump = dump, .graph = dump->graph, .output = output};

    writer.fixed[MEMSCOPE_EDGE_CLASS] = add_name(&writer, "<class>");
    writer.fixed[MEMSCOPE_EDGE_KEY] = add_name(&writer, "<key>");
    writer.fixed[MEMSCOPE_EDGE_INTERNAL] = writer.fixed[MEMSCOPE_EDGE_THREAD] = add_name(&writer, "<reference>");
    writer.fixed[MEMSCOPE_EDGE_LOCAL] = add_name(&writer, "<local>");
    if (prepare(&writer))
        put_all(&writer);
    else
        output->error = ENOMEM;
    memscope_array_unmap(writer.places);
    memscope_shortest_paths_close(&writer.paths);
}
