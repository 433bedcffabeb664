/* Where memory accumulates. */
#ifndef MEMSCOPE_SUSPECTS_H
#define MEMSCOPE_SUSPECTS_H

#include "graph/dominators.h"
#include "graph/shortest_paths.h"

struct memscope_suspect {
    uint32_t node;
    uint64_t retained;
    uint64_t accumulated; /* its own bytes, and what it holds in small parts; may be shared, and is then not retained */
};

/*
 * Objects that are large themselves, or hold much in many parts, none of which is a large part of the whole; those that
 * have accumulated most come first. A list is one suspect, its head. Parts that are held elsewhere too belong to the
 * object through which the shortest paths lead to them. What a class or a module holds of classes and modules is code,
 * and is not counted. Maps 32 bytes a node while it looks.
 */
enum memscope_status memscope_suspects_find(const struct memscope_heap_graph *graph,
                                            const struct memscope_shortest_paths *paths,
                                            const struct memscope_dominators *dominators,
                                            struct memscope_suspect *suspects, size_t top, size_t *count);

#endif
