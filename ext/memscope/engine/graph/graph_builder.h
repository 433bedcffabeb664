/*
 * Filling a heap graph: first the caller writes each slot's type, node_class, slot_bytes and bytes. Then come the
 * references of each slot, in ascending order of slots, then the roots.
 *
 *     memscope_graph_open(&builder, &graph, slots, references, parts);
 *     graph.type[slot] = …, and so on
 *     memscope_graph_from(&builder, slot); memscope_graph_to(&builder, other, name); …
 *     memscope_graph_root_to(&builder, "vm", slot); …
 *     memscope_graph_finish(&builder);
 */
#pragma once

#include "graph/heap_graph.h"

/* Optional parts of a graph. */
#define MEMSCOPE_GRAPH_SLOT_BYTES 1u
#define MEMSCOPE_GRAPH_EDGE_NAMES 2u

struct memscope_graph_root {
    uint32_t category, to;
};

struct memscope_graph_builder {
    struct memscope_heap_graph *graph;
    enum memscope_status status; /* the first failure, after which additions are ignored */
    uint32_t node;               /* the node whose edges are being added */
    uint32_t next;               /* the first node whose first_edge is not written yet */
    uint32_t edges_reserved;
    unsigned parts;
    uint32_t *marks; /* by target, index of the edge to it, plus 1, only for nodes with many edges */
    struct memscope_graph_root *roots;
    uint32_t root_count;
};

/*
 * Zeroes the graph and maps its arrays for slot_count slots. expected_edges is a guess. Returns NO_MEMORY, or TRUNCATED
 * if 32-bit numbers do not suffice. After a failure both are closed.
 */
enum memscope_status memscope_graph_open(struct memscope_graph_builder *builder, struct memscope_heap_graph *graph,
                                         size_t slot_count, size_t expected_edges, unsigned parts);

/*
 * For a graph whose slots are not counted in advance: reserve makes room for the data of this many slots, in a graph
 * that was zeroed and whose names are open. begin then does the rest of open.
 */
bool memscope_graph_reserve(struct memscope_heap_graph *graph, size_t slot_count, unsigned parts);
enum memscope_status memscope_graph_begin(struct memscope_graph_builder *builder, struct memscope_heap_graph *graph,
                                          size_t slot_count, size_t expected_edges, unsigned parts);

/*
 * Begins the references of a slot. Slots must come in ascending order (else MALFORMED). A slot left out has no
 * references.
 */
void memscope_graph_from(struct memscope_graph_builder *builder, uint32_t slot);

/*
 * Adds a reference from the slot given to memscope_graph_from. A repeated reference is not added again, but its name
 * replaces MEMSCOPE_EDGE_INTERNAL. A target that is not a slot is ignored.
 */
void memscope_graph_to(struct memscope_graph_builder *builder, uint32_t slot, memscope_edge_name name);

/*
 * Adds a root. Call it after the references of all slots. A category is identified by its text, which stays the
 * caller's and must outlive the graph. Categories beyond the limit share the last one.
 */
void memscope_graph_root_to(struct memscope_graph_builder *builder, const char *category, uint32_t slot);

/*
 * Counts the slots with a type as objects, adds the roots' nodes, and closes the builder. Returns NO_MEMORY, MALFORMED,
 * or TRUNCATED if there are more references than 32 bits can number, and then closes the graph too.
 */
enum memscope_status memscope_graph_finish(struct memscope_graph_builder *builder);

/* Closes a builder that is not finished, and its graph. Idempotent. A zeroed builder is closed. */
void memscope_graph_abandon(struct memscope_graph_builder *builder);

/* Idempotent. A zeroed graph is closed. */
void memscope_graph_close(struct memscope_heap_graph *graph);
