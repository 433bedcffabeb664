/* Suspects: the objects in which memory accumulates. */
#pragma once

#include "graph/dominators.h"
#include "graph/shortest_paths.h"

struct memscope_accumulation {
    uint32_t node;
    uint64_t retained;
    uint64_t accumulated; /* its own bytes and its small parts, also shared parts that are not in `retained` */
};

/*
 * Objects that are large themselves, or hold much in many parts, none of which is a large part of the whole, in
 * descending order of accumulated bytes. A list is one suspect, its head. A part that others refer to too belongs to
 * the object through which the shortest paths lead to it. Classes and modules in a class or module are code, and not
 * its parts. The roots that at_exit and finalizers add to can be suspects too. While it searches, touches up to 16
 * bytes per node, and 16 more per node of a list.
 */
enum memscope_status memscope_accumulations_find(const struct memscope_heap_graph *graph,
                                                 const struct memscope_shortest_paths *paths,
                                                 const struct memscope_dominators *dominators,
                                                 struct memscope_accumulation *suspects, size_t top, size_t *count);
