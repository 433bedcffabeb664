/* A shortest path to each object that the roots reach. All other objects are garbage. */
#pragma once

#include "base/record.h"
#include "graph/heap_graph.h"

/*
 * Nodes to search last, so that a path leads through them only if there is no other path: the stack of the calling
 * thread, and Ruby's internal caches, which mean nothing to readers.
 */
struct memscope_search_last {
    const char *category;    /* of roots, or NULL */
    const uint32_t *classes; /* names of classes */
    size_t class_count;
};

/* Totals of the reachable objects, or of the garbage. */
struct memscope_heap_part {
    uint32_t count;      /* of objects */
    uint64_t slot_bytes; /* 0 if the graph has none */
    uint64_t bytes;
};

static inline void memscope_heap_part_add(struct memscope_heap_part *part, const struct memscope_heap_graph *graph,
                                          uint32_t slot) {
    part->count++;
    part->bytes += graph->bytes[slot];
    if (graph->slot_bytes != NULL)
        part->slot_bytes += graph->slot_bytes[slot];
}

/* Every object has a slot, so 0 bytes stand for slots whose sizes a dump does not state. */
static inline uint64_t memscope_stated_slot_bytes(uint64_t bytes, uint64_t objects) {
    return bytes == 0 && objects > 0 ? MEMSCOPE_UNKNOWN : bytes;
}

struct memscope_shortest_paths {
    uint32_t *parent;    /* the previous node on each node's path, the root for the root, MEMSCOPE_NO_NODE if none */
    uint32_t node_count; /* nodes that are reached, including the categories and the root */
    struct memscope_heap_part reachable, garbage;
};

/*
 * Touches up to 12 bytes per node, 4 of which stay mapped until closed. Zeroes the paths first. After NO_MEMORY they
 * are closed.
 */
enum memscope_status memscope_shortest_paths_find(struct memscope_shortest_paths *paths,
                                                  const struct memscope_heap_graph *graph,
                                                  const struct memscope_search_last *last);

static inline bool memscope_reaches(const struct memscope_shortest_paths *paths, uint32_t node) {
    return paths->parent[node] != MEMSCOPE_NO_NODE;
}

/* Idempotent. Zeroed paths are closed. */
void memscope_shortest_paths_close(struct memscope_shortest_paths *paths);
