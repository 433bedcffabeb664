/*
 * Filling a heap graph: first what each slot is (type, node_class, slot_bytes, bytes; written by whoever fills it),
 * then the references of each slot in order of their numbers, then the roots.
 *
 *     memscope_graph_open(&builder, &graph, slots, references, parts);
 *     graph.type[slot] = …, and so on
 *     memscope_graph_from(&builder, slot); memscope_graph_to(&builder, other, name); …
 *     memscope_graph_root_to(&builder, "vm", slot); …
 *     memscope_graph_finish(&builder);
 */
#ifndef MEMSCOPE_GRAPH_BUILDER_H
#define MEMSCOPE_GRAPH_BUILDER_H

#include "graph/heap_graph.h"

/* What of a graph is wanted, or known. */
#define MEMSCOPE_GRAPH_SLOT_BYTES 1u
#define MEMSCOPE_GRAPH_EDGE_NAMES 2u

struct memscope_graph_root {
    uint32_t category, to;
};

struct memscope_graph_builder {
    struct memscope_heap_graph *graph;
    enum memscope_status status; /* the first failure; what is added later is ignored */
    uint32_t node;               /* whose edges are added */
    uint32_t next;               /* the first node whose first_edge is not written yet */
    uint32_t edges_reserved;
    uint32_t *marks; /* by target, one more than where the edge to it is; only of nodes with many edges */
    struct memscope_graph_root *roots;
    uint32_t root_count, roots_reserved;
};

/*
 * Zeroes the graph and maps its arrays for so many slots; expected_edges is a guess. TRUNCATED if numbers of 32 bits do
 * not suffice, NO_MEMORY. After a failure both are closed.
 */
enum memscope_status memscope_graph_open(struct memscope_graph_builder *builder, struct memscope_heap_graph *graph,
                                         size_t slot_count, size_t expected_edges, unsigned parts);

/* Slots come in ascending order (else the graph is MALFORMED); those left out have no references. */
void memscope_graph_from(struct memscope_graph_builder *builder, uint32_t slot);

/*
 * A reference of that slot. One that is there already is not added again, but a name replaces MEMSCOPE_EDGE_INTERNAL.
 * What is no slot is ignored.
 */
void memscope_graph_to(struct memscope_graph_builder *builder, uint32_t slot, memscope_edge_name name);

/*
 * A root, once all slots have their references. Categories are told apart by their text, which stays the caller's and
 * must outlive the graph; those beyond the limit share the last.
 */
void memscope_graph_root_to(struct memscope_graph_builder *builder, const char *category, uint32_t slot);

/*
 * Counts objects by their types, adds the roots' nodes, and closes the builder. TRUNCATED if there are more references
 * than 32 bits count, NO_MEMORY: the graph is then closed too.
 */
enum memscope_status memscope_graph_finish(struct memscope_graph_builder *builder);

/* A builder that is not finished. Closes its graph too; idempotent; a zeroed one counts as closed. */
void memscope_graph_abandon(struct memscope_graph_builder *builder);

/* Idempotent; a zeroed graph counts as closed. */
void memscope_graph_close(struct memscope_heap_graph *graph);

#endif
