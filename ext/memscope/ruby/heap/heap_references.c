#include "ruby/heap/heap_references.h"

#include "graph/graph_builder.h"
#include "ruby/ruby_private.h"

#include <string.h>

#ifdef HAVE_RB_OBJSPACE_REACHABLE_OBJECTS_FROM

/* The average in applications; the arrays grow if there are more edges. */
#define EDGES_OF_AN_OBJECT 3

/* Prefetches this many bytes ahead of the visited slot: objects are described in a quarter less time. */
#define AHEAD 1024

struct filling {
    struct memscope_heap_references *references;
    struct memscope_graph_builder builder;
    struct memscope_held_walk held;
    VALUE fields; /* the imemo_fields that the current object refers to; 0: none */
    bool of_fields, has_finalizers;
};

/* ---- what each slot is ----------------------------------------------------------------------------------------- */

/* A zombie, which waits for its finalizer, is no object, nor is a forwarding address. */
static bool is_object(VALUE slot) {
    int type = RB_BUILTIN_TYPE(slot);

    return type != RUBY_T_NONE && type != RUBY_T_MOVED && type != RUBY_T_ZOMBIE;
}

static void describe(struct filling *filling, VALUE object, uint32_t node, uint32_t slot_bytes) {
    struct memscope_heap_graph *graph = &filling->references->graph;
    size_t bytes = slot_bytes + memscope_held_bytes_of(&filling->held, object, slot_bytes);

    filling->has_finalizers |= RB_FL_TEST_RAW(object, RUBY_FL_FINALIZE) != 0;
    graph->type[node] = (uint8_t)RB_BUILTIN_TYPE(object);
    graph->node_class[node] = memscope_name_of_class_of(&filling->references->class_names, object);
    graph->slot_bytes[node] = slot_bytes;
    graph->bytes[node] = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

static void each_object(struct filling *filling,
                        void (*visit)(struct filling *filling, VALUE object, uint32_t node, uint32_t slot_bytes)) {
    const struct memscope_heap_references *references = filling->references;

    for (size_t at = 0; at < references->pages.listing->count; at++) {
        const struct memscope_heap_page *page = &references->pages.listing->pages[at];
        VALUE slot = page->start + page->slots_offset;

        for (uint32_t index = 0; index < page->slot_count; index++, slot += page->slot_bytes) {
            __builtin_prefetch((const void *)(slot + AHEAD));
            if (is_object(slot))
                visit(filling, slot, references->pages.first_slots[at] + index, page->slot_bytes);
        }
    }
}

/* ---- references ------------------------------------------------------------------------------------------------ */

static void add_reference(VALUE to, void *data) {
    struct filling *filling = data;
    uint32_t node = memscope_node_of(filling->references, to);

    if (node == MEMSCOPE_NO_NODE || filling->references->graph.type[node] == 0)
        return;
    memscope_graph_to(&filling->builder, node, MEMSCOPE_EDGE_INTERNAL);
    if (!filling->of_fields && RB_BUILTIN_TYPE(to) == RUBY_T_IMEMO && MEMSCOPE_IS_FIELDS(to))
        filling->fields = to;
}

/*
 * The references of an imemo_fields are added to its owner too, so that paths lead through the owner, as in other
 * Rubies.
 */
static void add_references(struct filling *filling, VALUE object, uint32_t node, uint32_t slot_bytes) {
    memscope_graph_from(&filling->builder, node);
    filling->fields = 0;
    filling->of_fields = RB_BUILTIN_TYPE(object) == RUBY_T_IMEMO;
    rb_objspace_reachable_objects_from(object, add_reference, filling);
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

/* A finalizer is a Proc or Method, or any other object with a method `call`, but hardly text or a collection. */
static bool may_be_finalizer(VALUE object) {
    if (RB_SPECIAL_CONST_P(object))
        return false;
    switch (RB_BUILTIN_TYPE(object)) {
    case RUBY_T_DATA:
    case RUBY_T_OBJECT:
    case RUBY_T_STRUCT:
    case RUBY_T_CLASS:
    case RUBY_T_MODULE:
        return true;
    default:
        return false;
    }
}

/* Leaves out the shared roots of Arrays, which are hidden too. */
bool memscope_may_be_finalizers(VALUE object) {
    long first = MEMSCOPE_FINALIZERS_FOLLOW_ID ? 1 : 0;

    if (RB_BUILTIN_TYPE(object) != RUBY_T_ARRAY || RBASIC_CLASS(object) != 0 || RARRAY_LEN(object) <= first ||
        RB_FL_TEST_RAW(object, MEMSCOPE_ARRAY_IS_SHARED_ROOT) ||
        (MEMSCOPE_FINALIZERS_FOLLOW_ID && !RB_INTEGER_TYPE_P(RARRAY_AREF(object, 0))))
        return false;
    for (long index = first; index < RARRAY_LEN(object); index++)
        if (!may_be_finalizer(RARRAY_AREF(object, index)))
            return false;
    return true;
}

/* Garbage that looks like a list of finalizers counts as reachable. */
static void add_finalizers(struct filling *filling, VALUE object, uint32_t node, uint32_t slot_bytes) {
    if (memscope_may_be_finalizers(object))
        memscope_graph_root_to(&filling->builder, "finalizers", node);
}

static enum memscope_status fill(struct filling *filling) {
    struct memscope_heap_references *references = filling->references;

    memscope_heap_held_open(&filling->held, &references->held);
    each_object(filling, describe);
    memscope_heap_held_close(&filling->held);
    each_object(filling, add_references);
    rb_objspace_reachable_objects_from_root(add_root, filling);
    if (MEMSCOPE_ROOTS_LACK_FINALIZERS && filling->has_finalizers)
        each_object(filling, add_finalizers);
    return memscope_graph_finish(&filling->builder);
}

enum memscope_status memscope_heap_references_fill(struct memscope_heap_references *references,
                                                   const struct memscope_heap_listing *listing,
                                                   struct memscope_scratch *scratch) {
    struct filling filling = {.references = references};
    size_t slots = (size_t)listing->slots;
    enum memscope_status status;

    memset(references, 0, sizeof *references);
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

#else

enum memscope_status memscope_heap_references_fill(struct memscope_heap_references *references,
                                                   const struct memscope_heap_listing *listing,
                                                   struct memscope_scratch *scratch) {
    memset(references, 0, sizeof *references);
    return MEMSCOPE_UNSUPPORTED;
}

#endif

void memscope_heap_references_close(struct memscope_heap_references *references) {
    memscope_class_names_close(&references->class_names);
    memscope_graph_close(&references->graph);
}
