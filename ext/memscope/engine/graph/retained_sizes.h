/*
 * The classes and the objects that retain most, by dominators. Answers go into the caller's arrays, the largest first.
 */
#pragma once

#include "record_structs.h"

#include "graph/dominators.h"
#include "graph/shortest_paths.h"

/*
 * With dominators, the classes of the reachable objects, by retained bytes. Without (NULL), the classes of the objects
 * that no path reaches, by the objects' own bytes, which retained_bytes repeats. Maps 48 bytes a class while it counts.
 */
enum memscope_status memscope_largest_classes(const struct memscope_heap_graph *graph,
                                              const struct memscope_shortest_paths *paths,
                                              const struct memscope_dominators *dominators,
                                              struct memscope_class_row *rows, size_t top, size_t *count);

struct memscope_retainer {
    uint32_t node;
    uint32_t object_count; /* of all that it dominates, itself included */
    uint64_t retained;
};

/*
 * The objects that retain most. A list is represented by its head: an object is left out if one of its nearest
 * dominators is of the same class and retains hardly more.
 */
enum memscope_status memscope_largest_retainers(const struct memscope_heap_graph *graph,
                                                const struct memscope_dominators *dominators,
                                                struct memscope_retainer *holders, size_t top, size_t *count);

/*
 * The node before an object in its linked list: the nearest dominator, within a few steps, that has the same class and
 * retains less than `times` times the object's bytes. MEMSCOPE_NO_NODE if there is none, and for classes and modules.
 */
uint32_t memscope_previous_in_list(const struct memscope_heap_graph *graph,
                                   const struct memscope_dominators *dominators, uint32_t node, double times);
