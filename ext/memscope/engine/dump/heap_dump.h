/*
 * What a heap dump is made of: a graph, and what belongs to it outside of this process. There are no contents in it: no
 * string, symbol, number or key, and no address. Nothing here takes memory from malloc, so a forked child can write it.
 */
#ifndef MEMSCOPE_HEAP_DUMP_H
#define MEMSCOPE_HEAP_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/heap_graph.h"

/* The name of the class or module that an object is. */
struct memscope_module_name {
    uint32_t node, name;
};

/* To what size an object's malloc memory is rounded up, so that the length of a text does not tell what it is. */
enum memscope_size_rule {
    MEMSCOPE_SIZES_EXACT,
    MEMSCOPE_SIZES_OF_GLIBC,    /* chunks of 16 bytes */
    MEMSCOPE_SIZES_OF_JEMALLOC, /* four classes for each doubling; for allocators that are not known too */
};

struct memscope_heap_dump {
    const struct memscope_heap_graph *graph;

    /*
     * Of each slot, an odd number that stays the same for the life of the process: its distance from BasicObject.
     * NULL: not known.
     */
    const uint32_t *ids;

    const struct memscope_module_name *modules; /* ascending by node */
    uint32_t module_count;

    /*
     * Names the edges of a node, in their order. NULL: as graph->edge_names has them, if it does. Names that are new go
     * to graph->names.
     */
    void (*name_edges)(void *context, uint32_t node, memscope_edge_name *names);
    void *context;

    enum memscope_size_rule sizes;
    uint32_t pid;
    uint64_t time_ns;    /* since 1970 */
    const char *process; /* its name */
};

/* The slot's number at a distance of so many bytes from BasicObject's; 0 if it is too far for a number of 32 bits. */
uint32_t memscope_heap_dump_id(int64_t distance);

/* An object's bytes, as a dump shows them. */
uint64_t memscope_heap_dump_bytes(const struct memscope_heap_dump *dump, uint32_t node);

/* The name of the class or module that node is; 0 (the empty name) if it is none, or has no name. */
uint32_t memscope_heap_dump_module_name(const struct memscope_heap_dump *dump, uint32_t node);

#endif
