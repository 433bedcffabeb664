/*
 * The lines of ObjectSpace.dump_all, without contents and addresses. A slot's distance from BasicObject replaces its
 * address, so that tools that compare dumps by address find the same objects. The key "edge_names" is memscope's own:
 * with {"2":"HANDLERS"}, the third reference is by the constant HANDLERS. Other tools ignore it.
 */
#include "dump/heap_dump.h"

#include <string.h>

#include "dump/objspace_line.h"

/* The address written for BasicObject, and the bytes of a place (heap_dump.c). */
#define ORIGIN (INT64_C(1) << 44)
#define PLACE 32
/* Room for all places. */
#define PLACES_SHIFT 36

struct writer {
    const struct memscope_heap_dump *dump;
    const struct memscope_heap_graph *graph;
    struct memscope_dump_output *output;
    int64_t origin; /* the address of place 0 */
};

/*
 * Without ids, addresses are made from nodes' numbers, which mean nothing in another dump. So the addresses of each
 * dump begin at a different origin, chosen by 26 bits of a hash of the dump's time. A tool that compares two dumps by
 * address then does not take their objects for the same.
 */
static int64_t origin_of(const struct memscope_heap_dump *dump) {
    int64_t units = (int64_t)(dump->time_ns * UINT64_C(0x9e3779b97f4a7c15) >> 38) + 1;

    return dump->ids != NULL ? ORIGIN : ORIGIN + (units << PLACES_SHIFT);
}

static void put_address(const struct writer *writer, uint32_t node) {
    int64_t place = ((int64_t)(int32_t)memscope_heap_dump_id_of(writer->dump, node) - 1) / 2;

    memscope_dump_put_text(writer->output, "\"0x");
    memscope_dump_put_hexadecimal(writer->output, (uint64_t)(writer->origin + place * PLACE));
    memscope_dump_put_text(writer->output, "\"");
}

static void put_name(const struct writer *writer, const char *key, uint32_t name) {
    memscope_dump_put_text(writer->output, key);
    memscope_dump_put_string(writer->output, memscope_names_get(&writer->graph->names, name));
}

/* Puts all references except the edge left_out. */
static void put_references(const struct writer *writer, uint32_t node, uint32_t left_out) {
    bool any = false;

    for (uint32_t edge = writer->graph->first_edge[node]; edge < writer->graph->first_edge[node + 1]; edge++) {
        if (edge == left_out || writer->graph->edges[edge] >= writer->graph->slot_count)
            continue;
        memscope_dump_put_text(writer->output, any ? ", " : ", \"references\":[");
        put_address(writer, writer->graph->edges[edge]);
        any = true;
    }
    if (any)
        memscope_dump_put_text(writer->output, "]");
}

/* The name of the constant, or of the instance, class or local variable. 0 for other edges. */
static uint32_t name_of_edge(const struct writer *writer, uint32_t edge) {
    memscope_edge_name name = memscope_graph_edge_name(writer->graph, edge);

    switch (MEMSCOPE_EDGE_KIND(name)) {
    case MEMSCOPE_EDGE_CONSTANT:
    case MEMSCOPE_EDGE_IVAR:
    case MEMSCOPE_EDGE_CVAR:
    case MEMSCOPE_EDGE_LOCAL:
        return MEMSCOPE_EDGE_NUMBER(name);
    default:
        return 0;
    }
}

/* Keys: indices into the references that put_references writes. */
static void put_edge_names(const struct writer *writer, uint32_t node, uint32_t left_out) {
    uint32_t place = 0;
    bool any = false;

    for (uint32_t edge = writer->graph->first_edge[node]; edge < writer->graph->first_edge[node + 1]; edge++) {
        if (edge == left_out || writer->graph->edges[edge] >= writer->graph->slot_count)
            continue;
        if (name_of_edge(writer, edge) != 0) {
            memscope_dump_put_text(writer->output, any ? ", \"" : ", \"edge_names\":{\"");
            memscope_dump_put_decimal(writer->output, place);
            put_name(writer, "\":", name_of_edge(writer, edge));
            any = true;
        }
        place++;
    }
    if (any)
        memscope_dump_put_text(writer->output, "}");
}

static void put_roots(const struct writer *writer, uint32_t category) {
    memscope_dump_put_text(writer->output, "{\"type\":\"ROOT\", \"root\":");
    memscope_dump_put_string(writer->output, memscope_text_of(writer->graph->categories[category]));
    put_references(writer, memscope_graph_category_node(writer->graph, category), UINT32_MAX);
    memscope_dump_put_text(writer->output, "}\n");
}

/* The node's edge to its class, UINT32_MAX if it has none. */
static uint32_t class_edge(const struct writer *writer, uint32_t node) {
    for (uint32_t edge = writer->graph->first_edge[node]; edge < writer->graph->first_edge[node + 1]; edge++)
        if (memscope_graph_edge_name(writer->graph, edge) == MEMSCOPE_EDGE_CLASS)
            return edge;
    return UINT32_MAX;
}

static void put_module(const struct writer *writer, uint32_t node) {
    const struct memscope_module_name *module = memscope_heap_dump_module(writer->dump, node);

    if (module == NULL)
        return;
    put_name(writer, module->singleton ? ", \"real_class_name\":" : ", \"name\":", module->name);
    if (module->singleton)
        memscope_dump_put_text(writer->output, ", \"singleton\":true");
}

/* "imemo_env" is an imemo of type env. */
static void put_imemo_type(const struct writer *writer, uint32_t node) {
    struct memscope_text label = memscope_names_get(&writer->graph->names, writer->graph->node_class[node]);

    if (label.length <= 6 || memcmp(label.start, "imemo_", 6) != 0)
        return;
    memscope_dump_put_text(writer->output, ", \"imemo_type\":");
    memscope_dump_put_string(writer->output, (struct memscope_text){label.start + 6, label.length - 6});
}

/* A T_DATA that is not named after its class is named after its type (ruby/class_names.h). */
static void put_data_type(const struct writer *writer, uint32_t node, uint32_t class_edge) {
    const struct memscope_module_name *class =
        class_edge == UINT32_MAX ? NULL : memscope_heap_dump_module(writer->dump, writer->graph->edges[class_edge]);
    uint32_t name = writer->graph->node_class[node];

    if (class == NULL ? name != memscope_names_find(&writer->graph->names, "T_DATA", 6) : name != class->name)
        put_name(writer, ", \"struct\":", name);
}

static void put_object(const struct writer *writer, uint32_t node) {
    uint8_t type = writer->graph->type[node];
    uint32_t edge = class_edge(writer, node);

    memscope_dump_put_text(writer->output, "{\"address\":");
    put_address(writer, node);
    memscope_dump_put_text(writer->output, ", \"type\":\"");
    memscope_dump_put_text(writer->output, memscope_objspace_type_name(type));
    memscope_dump_put_text(writer->output, "\"");
    if (writer->graph->slot_bytes != NULL) {
        memscope_dump_put_text(writer->output, ", \"slot_size\":");
        memscope_dump_put_decimal(writer->output, writer->graph->slot_bytes[node]);
    }
    if (edge != UINT32_MAX) {
        memscope_dump_put_text(writer->output, ", \"class\":");
        put_address(writer, writer->graph->edges[edge]);
    }
    if (type == MEMSCOPE_TYPE_CLASS || type == MEMSCOPE_TYPE_MODULE)
        put_module(writer, node);
    if (type == MEMSCOPE_TYPE_IMEMO)
        put_imemo_type(writer, node);
    if (type == MEMSCOPE_TYPE_DATA)
        put_data_type(writer, node, edge);
    put_references(writer, node, edge);
    put_edge_names(writer, node, edge);
    memscope_dump_put_text(writer->output, ", \"memsize\":");
    memscope_dump_put_decimal(writer->output, memscope_heap_dump_bytes(writer->dump, node));
    memscope_dump_put_text(writer->output, "}\n");
}

void memscope_objspace_write(const struct memscope_heap_dump *dump, struct memscope_dump_output *output) {
    struct writer writer = {.dump = dump, .graph = dump->graph, .output = output, .origin = origin_of(dump)};

    for (uint32_t category = 0; category < dump->graph->category_count; category++)
        put_roots(&writer, category);
    for (uint32_t node = 0; node < dump->graph->slot_count && output->error == 0; node++)
        if (dump->graph->type[node] != 0)
            put_object(&writer, node);
}
