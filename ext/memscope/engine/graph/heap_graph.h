/*
 * A heap as a directed graph of numbered nodes. The code that fills the graph gives the numbers: to slots of the
 * running process (ruby/heap/heap_references.h) or objects of a dump (dump/objspace_reader.h). Nothing here reads an
 * object, or takes memory from malloc, so all of it works in a forked child.
 *
 * Nodes, in this order: one for each slot, also if free, so that a slot's number follows from its address, one for each
 * category of roots, and one from which all categories are reached.
 */
#pragma once

#include "graph/names.h"

#define MEMSCOPE_NO_NODE UINT32_MAX
#define MEMSCOPE_ROOT_CATEGORIES 64

/* Ruby's numbers of types that matter to questions about a graph. */
enum memscope_object_type {
    MEMSCOPE_TYPE_CLASS = 0x02,
    MEMSCOPE_TYPE_MODULE = 0x03,
    MEMSCOPE_TYPE_ARRAY = 0x07,
    MEMSCOPE_TYPE_HASH = 0x08,
    MEMSCOPE_TYPE_STRUCT = 0x09,
    MEMSCOPE_TYPE_DATA = 0x0c,
    MEMSCOPE_TYPE_IMEMO = 0x1a,
    MEMSCOPE_TYPE_NODE = 0x1b,
    MEMSCOPE_TYPE_ICLASS = 0x1c,
};

/* How one object refers to another. The number of an edge is 0 for kinds without an explanation of it. */
enum memscope_edge_kind {
    MEMSCOPE_EDGE_INTERNAL, /* by a reference that Ruby code cannot name */
    MEMSCOPE_EDGE_CLASS,    /* an object's class */
    MEMSCOPE_EDGE_CONSTANT, /* number: its name in names, such as HANDLERS for Bus::HANDLERS */
    MEMSCOPE_EDGE_IVAR,     /* number: its name in names */
    MEMSCOPE_EDGE_CVAR,     /* number: its name in names */
    MEMSCOPE_EDGE_GLOBAL,   /* number: its name in names */
    MEMSCOPE_EDGE_LOCAL,    /* number: its name in names, 0 if unknown */
    MEMSCOPE_EDGE_INDEX,    /* an Array's or a Struct's element, number: its index, saturating */
    MEMSCOPE_EDGE_KEY,      /* a Hash's key itself */
    MEMSCOPE_EDGE_VALUE,    /* a Hash's value, number: the class of its key, as in node_class */
    MEMSCOPE_EDGE_THREAD,   /* a thread's or fiber's variable, number: its key in names, 0 if it may be data */
};

/* An edge's name in 32 bits: the kind in the lowest four. */
typedef uint32_t memscope_edge_name;
#define MEMSCOPE_EDGE_NAME(kind, number) ((memscope_edge_name)(kind) | (memscope_edge_name)(number) << 4)
#define MEMSCOPE_EDGE_KIND(name) ((enum memscope_edge_kind)((name)&15))
#define MEMSCOPE_EDGE_NUMBER(name) ((name) >> 4)
#define MEMSCOPE_EDGE_NUMBER_MAX (UINT32_MAX >> 4)

struct memscope_heap_graph {
    uint32_t node_count, slot_count, category_count;
    uint32_t object_count; /* slots with an object */
    uint32_t edge_count;

    /* By node, zero for the nodes of roots: */
    uint8_t *type;        /* Ruby's number of the type (RUBY_T_STRING is 5), 0 if no object */
    uint32_t *node_class; /* the name of its class, in names */
    uint32_t *slot_bytes; /* NULL if the dump does not state them */
    uint32_t *bytes;      /* slot and malloc memory, saturating at 4 GiB */

    /* Node n's edges begin at edges[first_edge[n]] and end before edges[first_edge[n + 1]]. Each target occurs once. */
    uint32_t *first_edge;
    uint32_t *edges;
    memscope_edge_name *edge_names; /* parallel to edges, NULL if edges were not named */

    const char *categories[MEMSCOPE_ROOT_CATEGORIES]; /* of roots: "vm", "machine_context", … */
    struct memscope_names names;
};

static inline memscope_edge_name memscope_graph_edge_name(const struct memscope_heap_graph *graph, uint32_t edge) {
    return graph->edge_names == NULL ? MEMSCOPE_EDGE_INTERNAL : graph->edge_names[edge];
}

/* The node of a category of roots, and the root, from which all categories are reached. */
static inline uint32_t memscope_graph_category_node(const struct memscope_heap_graph *graph, uint32_t category) {
    return graph->slot_count + category;
}

static inline uint32_t memscope_graph_root(const struct memscope_heap_graph *graph) {
    return graph->node_count - 1;
}

/* Returns true if a node is a class or module. These are identified one by one, not by their class. */
static inline bool memscope_graph_is_module(const struct memscope_heap_graph *graph, uint32_t node) {
    uint8_t type = graph->type[node];

    return type == MEMSCOPE_TYPE_CLASS || type == MEMSCOPE_TYPE_MODULE || type == MEMSCOPE_TYPE_ICLASS;
}

/* Returns true if the nodes that a node dominates are its parts, unlike those of a root, class or module. */
static inline bool memscope_graph_holds_dominated(const struct memscope_heap_graph *graph, uint32_t node) {
    return node < graph->slot_count && !memscope_graph_is_module(graph, node);
}
