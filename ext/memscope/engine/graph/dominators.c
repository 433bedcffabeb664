#include "graph/dominators.h"

#include "base/mapped_array.h"

#include <string.h>

/* Edges or nodes between one stage of prefetching and the next. */
#define AHEAD 4

/*
 * From here on nodes are known by their number in the order in which a depth-first search finds them, from 1 on. A
 * node's ancestors have smaller numbers, so "above node w" is "smaller than w".
 */
struct visit {
    uint32_t number, edge, end;
};

struct found {
    uint32_t node;
    uint32_t dominator; /* initially the parent */
};

/* The state of a node while dominators are sought, and then while they are laid out. */
struct search {
    union {
        uint32_t semi; /* the semidominator, initially the smallest number with an edge to this one from above */
        uint32_t free_position;
    };
    union {
        uint32_t last_back; /* index into backs, 0 if none */
        uint32_t best; /* the smallest semidominator on the path from this node up to, but excluding, its ancestor */
        uint32_t size; /* nodes that it dominates, itself included */
    };
};

/* An edge that leads back, to a node that was found earlier. */
struct back {
    uint32_t from;
    uint32_t next; /* the previous edge that leads back to the same node: an index, or 0 */
};

struct dominator_scan {
    const struct memscope_heap_graph *graph;
    uint32_t *number; /* of each node, 0 if not found yet */
    uint32_t count;

    /* By number: */
    struct found *found;
    struct search *search;
    uint32_t *ancestor; /* the parent in the search's tree, or, once compressed, any ancestor */

    struct back *backs; /* from index 1 on */
    uint32_t back_count;

    union {
        struct visit *visits; /* from the root to the node that is being searched */
        uint32_t *path;       /* the path to compress */
    } stack;
};

/* Maps room for all nodes, even if not all are reached, so that arrays of nodes can reuse the memory. */
static void *map_numbers(const struct memscope_heap_graph *graph, size_t item_size) {
    return memscope_array_map_unwritten((size_t)graph->node_count + 1, item_size);
}

static bool map_scan(struct dominator_scan *scan) {
    scan->number = map_numbers(scan->graph, sizeof *scan->number);
    scan->found = map_numbers(scan->graph, sizeof *scan->found);
    scan->search = map_numbers(scan->graph, sizeof *scan->search);
    scan->backs = memscope_array_map_unwritten((size_t)scan->graph->edge_count + 1, sizeof *scan->backs);
    scan->stack.visits = memscope_array_map_sparse((size_t)scan->graph->node_count + 1, sizeof *scan->stack.visits);
    return scan->number != NULL && scan->found != NULL && scan->search != NULL && scan->backs != NULL &&
           scan->stack.visits != NULL;
}

static void close_scan(struct dominator_scan *scan) {
    memscope_arrays_unmap(scan->number, scan->found, scan->search, scan->ancestor, scan->backs, scan->stack.visits);
    memset(scan, 0, sizeof *scan);
}

static struct visit find_node(struct dominator_scan *scan, uint32_t node, uint32_t parent) {
    uint32_t number = ++scan->count;

    scan->number[node] = number;
    scan->found[number] = (struct found){node, parent};
    scan->search[number].semi = parent;
    scan->search[number].last_back = 0;
    return (struct visit){number, scan->graph->first_edge[node], scan->graph->first_edge[node + 1]};
}

static void add_back(struct dominator_scan *scan, uint32_t from, uint32_t to) {
    scan->backs[++scan->back_count] = (struct back){from, scan->search[to].last_back};
    scan->search[to].last_back = scan->back_count;
}

/*
 * Prefetches what the search will read for the edges of a visit further on: first for their nodes, then the nodes' own
 * edges. Inlined, since a compiler may leave out a call of a function that only prefetches.
 */
static inline __attribute__((always_inline)) void look_ahead(const struct dominator_scan *scan, struct visit at) {
    const struct memscope_heap_graph *graph = scan->graph;

    if (at.end - at.edge > 2 * AHEAD) {
        uint32_t node = graph->edges[at.edge + 2 * AHEAD];

        __builtin_prefetch(&scan->number[node], 1);
        __builtin_prefetch(&graph->first_edge[node]);
    }
    if (at.end - at.edge > AHEAD)
        __builtin_prefetch(&graph->edges[graph->first_edge[graph->edges[at.edge + AHEAD]]]);
}

/* Numbers the nodes, and lists the edges that lead back. */
static void search_depth_first(struct dominator_scan *scan) {
    struct visit *visits = scan->stack.visits, at;
    uint32_t depth = 0;

    memset(scan->number, 0, scan->graph->node_count * sizeof *scan->number);
    visits[depth++] = find_node(scan, memscope_graph_root(scan->graph), 0);
    while (depth > 0) {
        at = visits[--depth];
        while (at.edge < at.end) {
            uint32_t to = scan->graph->edges[at.edge], number = scan->number[to];

            look_ahead(scan, at);
            at.edge++;
            if (number == 0) {
                visits[depth++] = at;
                at = find_node(scan, to, at.number);
            } else if (number < at.number) {
                add_back(scan, at.number, number);
            } else if (at.number < scan->search[number].semi) {
                scan->search[number].semi = at.number;
            }
        }
    }
    memscope_arrays_unmap(scan->stack.visits, scan->number);
    scan->stack.visits = NULL;
    scan->number = NULL;
}

/* The smallest semidominator from a node up to, but excluding, its first ancestor numbered `last` or less. */
static uint32_t best_above(struct dominator_scan *scan, uint32_t number, uint32_t last) {
    struct search *search = scan->search;
    uint32_t at = number, depth = 0;

    while (scan->ancestor[at] > last) {
        scan->stack.path[depth++] = at;
        at = scan->ancestor[at];
    }
    while (depth > 0) {
        uint32_t below = scan->stack.path[--depth];

        if (search[at].best < search[below].best)
            search[below].best = search[at].best;
        scan->ancestor[below] = scan->ancestor[at];
        at = below;
    }
    return search[number].best;
}

/*
 * Skips the remaining edges to a node once its semidominator is the root, since nothing is above the root: for a class
 * with a million instances, a few of them often suffice.
 */
static bool find_semidominators(struct dominator_scan *scan) {
    const uint32_t root = 1;

    scan->ancestor = map_numbers(scan->graph, sizeof *scan->ancestor);
    scan->stack.path = memscope_array_map_sparse((size_t)scan->count + 1, sizeof *scan->stack.path);
    if (scan->ancestor == NULL || scan->stack.path == NULL)
        return false;
    for (uint32_t number = scan->count; number > root; number--) {
        uint32_t semi = scan->search[number].semi;

        for (uint32_t back = scan->search[number].last_back; back != 0 && semi > root; back = scan->backs[back].next) {
            uint32_t best = best_above(scan, scan->backs[back].from, number);

            if (best < semi)
                semi = best;
        }
        scan->search[number].semi = scan->search[number].best = semi;
        scan->ancestor[number] = scan->found[number].dominator;
    }
    memscope_arrays_unmap(scan->backs, scan->ancestor, scan->stack.path);
    scan->backs = NULL;
    scan->ancestor = NULL;
    scan->stack.path = NULL;
    return true;
}

/* A node's dominator is the nearest common ancestor, in the tree of dominators, of its parent and its semidominator. */
static void find_dominators(struct dominator_scan *scan) {
    for (uint32_t number = 2; number <= scan->count; number++) {
        uint32_t dominator = scan->found[number].dominator;

        while (dominator > scan->search[number].semi)
            dominator = scan->found[dominator].dominator;
        scan->found[number].dominator = dominator;
    }
}

/* The number of nodes that each node dominates, itself included. */
static void count_dominated(struct dominator_scan *scan) {
    for (uint32_t number = 1; number <= scan->count; number++)
        scan->search[number].size = 1;
    for (uint32_t number = scan->count; number > 1; number--)
        scan->search[scan->found[number].dominator].size += scan->search[number].size;
}

/* Preorder: each node is followed by its descendants. */
static bool lay_out(const struct dominator_scan *scan, struct memscope_dominators *dominators) {
    dominators->tree = map_numbers(scan->graph, sizeof *dominators->tree);
    dominators->dominator = map_numbers(scan->graph, sizeof *dominators->dominator);
    if (dominators->tree == NULL || dominators->dominator == NULL)
        return false;
    dominators->node_count = scan->count;
    memset(dominators->dominator, 0xff, scan->graph->node_count * sizeof *dominators->dominator);
    scan->search[0].free_position = 0;
    for (uint32_t number = 1; number <= scan->count; number++) {
        uint32_t node = scan->found[number].node, above = number == 1 ? 0 : scan->found[number].dominator;
        uint32_t position = scan->search[above].free_position;

        if (scan->count - number > MEMSCOPE_NODES_AHEAD)
            __builtin_prefetch(&dominators->dominator[scan->found[number + MEMSCOPE_NODES_AHEAD].node], 1);
        scan->search[above].free_position += scan->search[number].size;
        scan->search[number].free_position = position + 1;
        dominators->tree[position] = (struct memscope_dominated){node, scan->search[number].size};
        dominators->dominator[node] = number == 1 ? node : scan->found[above].node;
    }
    return true;
}

static bool find_tree(struct dominator_scan *scan, struct memscope_dominators *dominators) {
    if (!map_scan(scan))
        return false;
    search_depth_first(scan);
    if (!find_semidominators(scan))
        return false;
    find_dominators(scan);
    count_dominated(scan);
    return lay_out(scan, dominators);
}

static bool add_up(struct memscope_dominators *dominators, const struct memscope_heap_graph *graph) {
    uint64_t *retained = map_numbers(graph, sizeof *retained);

    dominators->retained = retained;
    if (retained == NULL)
        return false;
    memset(retained, 0, graph->node_count * sizeof *retained);
    for (uint32_t position = dominators->node_count; position > 0; position--) {
        uint32_t node = dominators->tree[position - 1].node;

        if (position > MEMSCOPE_NODES_AHEAD) {
            uint32_t ahead = dominators->tree[position - MEMSCOPE_NODES_AHEAD].node;

            __builtin_prefetch(&retained[ahead], 1);
            __builtin_prefetch(&graph->bytes[ahead]);
            __builtin_prefetch(&dominators->dominator[ahead]);
        }
        retained[node] += graph->bytes[node];
        if (position > 1)
            retained[dominators->dominator[node]] += retained[node];
    }
    return true;
}

enum memscope_status memscope_dominators_find(struct memscope_dominators *dominators,
                                              const struct memscope_heap_graph *graph) {
    struct dominator_scan scan = {.graph = graph};
    bool found;

    memset(dominators, 0, sizeof *dominators);
    found = find_tree(&scan, dominators);
    close_scan(&scan); /* before more memory is taken */
    found = found && add_up(dominators, graph);
    if (!found)
        memscope_dominators_close(dominators);
    return found ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;
}

void memscope_dominators_close(struct memscope_dominators *dominators) {
    memscope_arrays_unmap(dominators->dominator, dominators->retained, dominators->tree);
    memset(dominators, 0, sizeof *dominators);
}
