/*
 * Retained sizes: an object dominates the objects that the roots reach only through it, and retains their bytes and its
 * own.
 */
#pragma once

#include "graph/heap_graph.h"

/* How far ahead loops over all nodes prefetch what they will read of a node. */
#define MEMSCOPE_NODES_AHEAD 16

/* A node, and the number of nodes it dominates, including itself. */
struct memscope_dominated {
    uint32_t node, count;
};

struct memscope_dominators {
    uint32_t *dominator; /* each node's immediate dominator, the root for the root, MEMSCOPE_NO_NODE if not reached */
    uint64_t *retained;  /* bytes of each node and of the nodes it dominates */
    struct memscope_dominated *tree; /* dominator tree in preorder: each node is followed by the nodes it dominates */
    uint32_t node_count;             /* nodes that are reached */
};

/*
 * Finds the dominators of all nodes that the root reaches, by semi-NCA (Georgiadis, Tarjan, Werneck: Finding Dominators
 * in Practice): less than a microsecond per node, in lists as in trees. Touches up to 28 bytes per node, 16 per node on
 * the longest path, and 8 per edge that leads back. 20 bytes per node stay mapped until closed. After NO_MEMORY, the
 * dominators are closed.
 */
enum memscope_status memscope_dominators_find(struct memscope_dominators *dominators,
                                              const struct memscope_heap_graph *graph);

/* The node to prefetch for, while the dominator tree is read in preorder. */
static inline uint32_t memscope_dominated_ahead(const struct memscope_dominators *dominators, uint32_t position) {
    bool has = dominators->node_count - position > MEMSCOPE_NODES_AHEAD;

    return dominators->tree[has ? position + MEMSCOPE_NODES_AHEAD : position].node;
}

/* Idempotent. Zeroed dominators are closed. */
void memscope_dominators_close(struct memscope_dominators *dominators);
