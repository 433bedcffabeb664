/*
 * What goes when an object goes: an object dominates those that the roots reach only through it, and retains their
 * bytes and its own.
 */
#ifndef MEMSCOPE_DOMINATORS_H
#define MEMSCOPE_DOMINATORS_H

#include "graph/heap_graph.h"

struct memscope_dominators {
    uint32_t *dominator; /* the immediate one of each node; the root's is itself; MEMSCOPE_NO_NODE: not reached */
    uint64_t *retained;  /* bytes of each node and of all that it dominates */

    /*
     * The tree of dominators in preorder, from the root on: which node is at each position, and how many positions from
     * there on it dominates, its own included.
     */
    uint32_t *order, *dominated;
    uint32_t node_count; /* reached */
};

/*
 * By semi-NCA (Georgiadis, Tarjan, Werneck: Finding Dominators in Practice), which takes less than a microsecond a node
 * in lists as in trees. Of the reached_count nodes that memscope_shortest_paths_find found. Maps at most 28 bytes a
 * reached node, 4 a node and 4 an edge that leads back, of which 12 a node and 8 a reached node stay until closed.
 * NO_MEMORY: the dominators are closed.
 */
enum memscope_status memscope_dominators_find(struct memscope_dominators *dominators,
                                              const struct memscope_heap_graph *graph, uint32_t reached_count);

/* Idempotent; zeroed dominators count as closed. */
void memscope_dominators_close(struct memscope_dominators *dominators);

#endif
