#include "ruby/heap/heap_references.h"

#include "graph/graph_builder.h"
#include "ruby/heap/roots.h"
#include "ruby/ruby_private.h"

#include <string.h>

/* The average in applications. The arrays grow for more edges. */
#define EDGES_OF_AN_OBJECT 3

struct filling {
    struct memscope_heap_references *references;
    struct memscope_graph_builder builder;
    struct memscope_held_walk held;
    VALUE fields; /* the imemo_fields that the current object refers to, 0 if none */
    bool of_fields;
};

/* ---- slots ----------------------------------------------------------------------------------------- */

static void describe(void *data, VALUE object, uint32_t node, uint32_t slot_bytes) {
    struct filling *filling = data;
    struct memscope_heap_graph *graph = &filling->references->graph;
    size_t bytes = slot_bytes + memscope_held_bytes_of(&filling->held, object, slot_bytes);

    graph->type[node] = (uint8_t)RB_BUILTIN_TYPE(object);
    graph->node_class[node] = memscope_name_of_class_of(&filling->references->class_names, object);
    graph->slot_bytes[node] = slot_bytes;
    graph->bytes[node] = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

/* ---- references ------------------------------------------------------------------------------------------------ */

static void add_reference(VALUE to, void *data) {
    struct filling *filling = data;
    uint32_t node = memscope_node_of(filling->references, to);

    if (node == MEMSCOPE_NO_NODE || filling->references->graph.type[node] == 0)
        return;
    memscope_graph_to(&filling->builder, node, MEMSCOPE_EDGE_INTERNAL);
    if (!filling->of_fields && filling->references->graph.type[node] == RUBY_T_IMEMO && MEMSCOPE_IS_FIELDS(to))
        filling->fields = to;
}

/*
 * The references of an imemo_fields are added to its owner too, so that paths lead through the owner, as in other
 * Rubies.
 */
static void add_references(void *data, VALUE object, uint32_t node, uint32_t slot_bytes) {
    struct filling *filling = data;

    memscope_graph_from(&filling->builder, node);
    filling->fields = 0;
    filling->of_fields = RB_BUILTIN_TYPE(object) == RUBY_T_IMEMO;
    memscope_each_reference(object, add_reference, filling);
    if (filling->fields == 0)
        return;
    filling->of_fields = true;
    rb_objspace_reachable_objects_from(filling->fields, add_reference, filling);
}

static void add_root(const char *category, VALUE object, void *data) {
    struct filling *filling = data;
    uint32_t node = memscope_node_of(filling->references, object);

    if (node != MEMSCOPE_NO_NODE && filling->references->graph.type[node] != 0)
        memscope_graph_root_to(&filling->builder, category, node);
}

static enum memscope_status fill(struct filling *filling) {
    struct memscope_heap_references *references = filling->references;

    memscope_heap_held_open(&filling->held, &references->held);
    memscope_each_object(&references->pages, describe, filling);
    memscope_heap_held_close(&filling->held);
    memscope_each_object(&references->pages, add_references, filling);
    memscope_each_root(&references->pages, add_root, filling);
    return memscope_graph_finish(&filling->builder);
}

enum memscope_status memscope_heap_references_fill(struct memscope_heap_references *references,
                                                   const struct memscope_heap_listing *listing,
                                                   struct memscope_scratch *scratch) {
    struct filling filling = {.references = references};
    size_t slots = (size_t)listing->slots;
    enum memscope_status status;

    memset(references, 0, sizeof *references);
    if (!MEMSCOPE_FOLLOWS_REFERENCES)
        return MEMSCOPE_UNSUPPORTED;
    if (!memscope_page_index_open(&references->pages, listing, scratch))
        return MEMSCOPE_NO_MEMORY;
    status = memscope_graph_open(&filling.builder, &references->graph, slots, slots * EDGES_OF_AN_OBJECT,
                                 MEMSCOPE_GRAPH_SLOT_BYTES);
    if (status != MEMSCOPE_OK)
        return status;
    status = memscope_class_names_open(&references->class_names, &references->graph.names);
    if (status == MEMSCOPE_OK)
        return fill(&filling);
    memscope_graph_abandon(&filling.builder);
    return status;
}

void memscope_heap_references_close(struct memscope_heap_references *references) {
    memscope_class_names_close(&references->class_names);
    memscope_graph_close(&references->graph);
}
