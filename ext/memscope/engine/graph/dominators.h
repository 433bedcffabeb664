/*
 * What is freed with an object: an object dominates the objects that the roots reach only through it, and retains
 * their bytes and its own.
 */
#ifndef MEMSCOPE_DOMINATORS_H
#define MEMSCOPE_DOMINATORS_H

#include "graph/heap_graph.h"

struct memscope_dominators {
    uint32_t *dominator; /* each node's immediate dominator; the root's is the root; MEMSCOPE_NO_NODE: not reached */
    uint64_t *retained;  /* bytes of each node and of all that it dominates */

    /*
     * The tree of dominators in preorder, from the root on: the node at each position, and how many positions it
     * dominates from there on, including its own.
     */
    uint32_t *order, *dominated;
    uint32_t node_count; /* nodes that are reached */
};

/*
 * Finds the dominators of the reached_count nodes that memscope_shortest_paths_find found, by semi-NCA (Georgiadis,
 * Tarjan, Werneck: Finding Dominators in Practice): less than a microsecond a node, in lists as in trees. Maps up to 28
 * bytes a reached node, with 4 a node or 4 an edge that leads back, for the search; then 24 a reached node and 12 a
 * node, of which 8 and 12 stay until closed. After NO_MEMORY, the dominators are closed.
 */
enum memscope_status memscope_dominators_find(struct memscope_dominators *dominators,
                                              const struct memscope_heap_graph *graph, uint32_t reached_count);

/* Idempotent; zeroed dominators count as closed. */
void memscope_dominators_close(struct memscope_dominators *dominators);

#endif
