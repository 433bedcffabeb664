#include "graph/accumulation.h"

#include "base/mapped_array.h"
#include "graph/retained_sizes.h"
#include "graph/top_rows.h"

#include <string.h>

/* A part is small if it is at most 1 / SMALL_PARTS of the whole. */
#define SMALL_PARTS 8

/* Fewer nodes, such as nested Hashes, are not a list. */
#define MIN_LIST 8

struct suspect_scan {
    const struct memscope_heap_graph *graph;
    const struct memscope_shortest_paths *paths;
    const struct memscope_dominators *dominators;
    /* By node: */
    uint64_t *shared;         /* bytes of the parts that holder_of found by the shortest paths, few written */
    uint64_t *accumulated;    /* own bytes and small parts */
    uint32_t *follower_count; /* nodes that follow in its list, few written */
    uint64_t *followed_by;    /* bytes that the followers have accumulated, neither read nor written without any */
};

static bool map_scan(struct suspect_scan *scan) {
    size_t nodes = scan->graph->node_count;

    scan->shared = memscope_array_map(nodes, sizeof *scan->shared);
    scan->accumulated = memscope_array_map_unwritten(nodes, sizeof *scan->accumulated);
    scan->follower_count = memscope_array_map(nodes, sizeof *scan->follower_count);
    scan->followed_by = memscope_array_map_sparse(nodes, sizeof *scan->followed_by);
    return scan->shared != NULL && scan->accumulated != NULL && scan->follower_count != NULL &&
           scan->followed_by != NULL;
}

static void close_scan(struct suspect_scan *scan) {
    memscope_arrays_unmap(scan->shared, scan->accumulated, scan->follower_count, scan->followed_by);
}

/*
 * Returns true if a root is a list to which a program adds: blocks of at_exit, finalizers. Other roots have names, like
 * global variables, or refer to short-lived objects.
 */
static bool is_list_of_roots(const struct memscope_heap_graph *graph, uint32_t node) {
    const char *category;

    if (node == memscope_graph_root(graph))
        return false;
    category = graph->categories[node - graph->slot_count];
    return strcmp(category, "end_proc") == 0 || strcmp(category, "finalizers") == 0;
}

/*
 * The object that a node is a part of: its dominator or, if that is a root, a class or a module, the previous node on
 * the shortest path to the node, which may be a list of roots. MEMSCOPE_NO_NODE if there is none.
 */
static uint32_t holder_of(const struct suspect_scan *scan, uint32_t node) {
    const struct memscope_heap_graph *graph = scan->graph;
    uint32_t holder = scan->dominators->dominator[node];

    if (memscope_graph_holds_dominated(graph, holder))
        return holder;
    holder = scan->paths->parent[node];
    if (holder >= graph->slot_count)
        return node < graph->slot_count && is_list_of_roots(graph, holder) ? holder : MEMSCOPE_NO_NODE;
    if (memscope_graph_is_module(graph, holder) && memscope_graph_is_module(graph, node))
        return MEMSCOPE_NO_NODE;
    return holder;
}

/* Bytes of all parts of an object. */
static uint64_t held_by(const struct suspect_scan *scan, uint32_t holder) {
    uint64_t dominated = scan->dominators->retained[holder] - scan->graph->bytes[holder];

    return scan->shared[holder] + (memscope_graph_holds_dominated(scan->graph, holder) ? dominated : 0);
}

/* Inlined, since a compiler may leave out a call of a function that only prefetches. */
static inline __attribute__((always_inline)) void prefetch_holder(const struct suspect_scan *scan, uint32_t node) {
    uint32_t holder = node < scan->graph->node_count ? scan->dominators->dominator[node] : MEMSCOPE_NO_NODE;

    if (holder == MEMSCOPE_NO_NODE)
        return;
    __builtin_prefetch(&scan->graph->type[holder]);
    __builtin_prefetch(&scan->graph->bytes[holder]);
    __builtin_prefetch(&scan->dominators->retained[holder]);
    __builtin_prefetch(&scan->shared[holder], 1);
    __builtin_prefetch(&scan->accumulated[holder], 1);
}

static void add_up_parts(struct suspect_scan *scan) {
    const struct memscope_dominators *dominators = scan->dominators;

    for (uint32_t node = 0, holder; node < scan->graph->node_count; node++) {
        prefetch_holder(scan, node + MEMSCOPE_NODES_AHEAD);
        scan->accumulated[node] = 0;
        if (!memscope_reaches(scan->paths, node))
            continue;
        scan->accumulated[node] = scan->graph->bytes[node];
        if (!memscope_graph_holds_dominated(scan->graph, dominators->dominator[node]) &&
            (holder = holder_of(scan, node)) != MEMSCOPE_NO_NODE)
            scan->shared[holder] += dominators->retained[node];
    }
    for (uint32_t node = 0, holder; node < scan->graph->node_count; node++) {
        prefetch_holder(scan, node + MEMSCOPE_NODES_AHEAD);
        if (memscope_reaches(scan->paths, node) && (holder = holder_of(scan, node)) != MEMSCOPE_NO_NODE &&
            dominators->retained[node] <= held_by(scan, holder) / SMALL_PARTS)
            scan->accumulated[holder] += dominators->retained[node];
    }
}

/* Prefetches what add_up_lists will read, first of the node and then of its dominator. */
static inline __attribute__((always_inline)) void look_ahead(const struct suspect_scan *scan, uint32_t position) {
    const struct memscope_dominators *dominators = scan->dominators;

    if (position >= 2 * MEMSCOPE_NODES_AHEAD) {
        uint32_t node = dominators->tree[position - 2 * MEMSCOPE_NODES_AHEAD].node;

        __builtin_prefetch(&dominators->dominator[node]);
        __builtin_prefetch(&dominators->retained[node]);
        __builtin_prefetch(&scan->follower_count[node]);
        __builtin_prefetch(&scan->graph->node_class[node]);
    }
    if (position >= MEMSCOPE_NODES_AHEAD) {
        uint32_t above = dominators->dominator[dominators->tree[position - MEMSCOPE_NODES_AHEAD].node];

        __builtin_prefetch(&dominators->retained[above]);
        __builtin_prefetch(&dominators->dominator[above]);
        __builtin_prefetch(&scan->graph->node_class[above]);
    }
}

/* Adds up the bytes that lists have accumulated, from the last node of each to its head. */
static void add_up_lists(struct suspect_scan *scan) {
    for (uint32_t position = scan->dominators->node_count; position > 0; position--) {
        uint32_t node = scan->dominators->tree[position - 1].node, count = scan->follower_count[node], previous;
        uint64_t bytes = count == 0 ? 0 : scan->followed_by[node];

        look_ahead(scan, position - 1);
        if (node >= scan->graph->slot_count)
            continue;
        previous = memscope_previous_in_list(scan->graph, scan->dominators, node, 2);
        if (previous != MEMSCOPE_NO_NODE) {
            scan->follower_count[previous] += count + 1;
            scan->followed_by[previous] += bytes + scan->accumulated[node];
        } else if (count + 1 >= MIN_LIST) {
            scan->accumulated[node] += bytes;
        }
    }
}

static size_t take_largest(const struct suspect_scan *scan, struct memscope_top_rows *largest,
                           struct memscope_accumulation *suspects) {
    for (uint32_t node = 0; node < scan->graph->node_count; node++)
        if (memscope_top_rows_may_take(largest, scan->accumulated[node]))
            memscope_top_rows_offer(largest, scan->accumulated[node], node);
    memscope_top_rows_sort(largest);
    for (size_t index = 0; index < largest->count; index++) {
        uint32_t node = largest->items[index].number;

        suspects[index] =
            (struct memscope_accumulation){node, scan->dominators->retained[node], largest->items[index].weight};
    }
    return largest->count;
}

enum memscope_status memscope_accumulations_find(const struct memscope_heap_graph *graph,
                                                 const struct memscope_shortest_paths *paths,
                                                 const struct memscope_dominators *dominators,
                                                 struct memscope_accumulation *suspects, size_t top, size_t *count) {
    struct suspect_scan scan = {.graph = graph, .paths = paths, .dominators = dominators};
    struct memscope_top_rows largest;
    enum memscope_status status = memscope_top_rows_open(&largest, top < graph->slot_count ? top : graph->slot_count);

    *count = 0;
    if (!map_scan(&scan))
        status = MEMSCOPE_NO_MEMORY;
    if (status == MEMSCOPE_OK) {
        add_up_parts(&scan);
        add_up_lists(&scan);
        *count = take_largest(&scan, &largest, suspects);
    }
    memscope_top_rows_close(&largest);
    close_scan(&scan);
    return status;
}
