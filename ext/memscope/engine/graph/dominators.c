#include "graph/dominators.h"

#include "base/mapped_array.h"

#include <string.h>

/*
 * From here on nodes are known by their number in the order in which a depth-first search finds them, from 1 on. A
 * node's ancestors have smaller numbers, so "above node w" is "smaller than w".
 */
struct link {
    uint32_t ancestor; /* the parent in the search's tree, or, once compressed, any ancestor */
    uint32_t best;     /* the smallest semidominator on the path from this node up to, but excluding, the ancestor */
};

struct visit {
    uint32_t number, edge, end;
};

struct found {
    uint32_t node;
    uint32_t dominator; /* initially the parent */
};

/* What is known of a node while dominators are sought, and then while they are laid out. */
struct search {
    union {
        uint32_t semi; /* the semidominator; initially the smallest number with an edge to this one from above */
        uint32_t free_position;
    };
    union {
        uint32_t last_back; /* index into backs; 0: none */
        uint32_t size;      /* nodes that it dominates, itself included */
    };
};

/* An edge that leads back, to a node that was found earlier. */
struct back {
    uint32_t from;
    uint32_t next; /* the previous one to the same node: an index, or 0 */
};

struct dominator_scan {
    const struct memscope_heap_graph *graph;
    uint32_t *number; /* of each node; 0: not found yet */
    uint32_t count;

    /* By number: */
    struct found *found;
    struct search *search;
    struct link *links;

    struct back *backs; /* from index 1 on */
    uint32_t back_count;

    union {
        struct visit *visits; /* from the root to the node that is being searched */
        uint32_t *path;       /* the path to be compressed */
    } stack;
};

/* For a number or a position of each node, though not all are reached, so that arrays of nodes can reuse the memory. */
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
    memscope_array_unmap(scan->number);
    memscope_array_unmap(scan->found);
    memscope_array_unmap(scan->search);
    memscope_array_unmap(scan->links);
    memscope_array_unmap(scan->backs);
    memscope_array_unmap(scan->stack.visits);
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

/* Numbers the nodes, and lists the edges that lead back. */
static void search_depth_first(struct dominator_scan *scan) {
    struct visit *visits = scan->stack.visits, at;
    uint32_t depth = 0;

    memset(scan->number, 0, scan->graph->node_count * sizeof *scan->number);
    visits[depth++] = find_node(scan, memscope_graph_root(scan->graph), 0);
    while (depth > 0) {
        at = visits[--depth];
        while (at.edge < at.end) {
            uint32_t to = scan->graph->edges[at.edge++], number = scan->number[to];

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
    memscope_array_unmap(scan->stack.visits);
    memscope_array_unmap(scan->number);
    scan->stack.visits = NULL;
    scan->number = NULL;
}

/* The smallest semidominator on the path from a node up to, but excluding, its first ancestor not above `last`. */
static uint32_t best_above(struct dominator_scan *scan, uint32_t number, uint32_t last) {
    struct link *links = scan->links;
    uint32_t at = number, depth = 0;

    while (links[at].ancestor > last) {
        scan->stack.path[depth++] = at;
        at = links[at].ancestor;
    }
    while (depth > 0) {
        uint32_t below = scan->stack.path[--depth];

        if (links[at].best < links[below].best)
            links[below].best = links[at].best;
        links[below].ancestor = links[at].ancestor;
        at = below;
    }
    return links[number].best;
}

/* Nothing is above the root, so that a class with a million instances is often decided after a few of them. */
static bool find_semidominators(struct dominator_scan *scan) {
    const uint32_t root = 1;

    scan->links = map_numbers(scan->graph, sizeof *scan->links);
    scan->stack.path = memscope_array_map_sparse((size_t)scan->count + 1, sizeof *scan->stack.path);
    if (scan->links == NULL || scan->stack.path == NULL)
        return false;
    for (uint32_t number = scan->count; number > root; number--) {
        uint32_t semi = scan->search[number].semi;

        for (uint32_t back = scan->search[number].last_back; back != 0 && semi > root; back = scan->backs[back].next) {
            uint32_t best = best_above(scan, scan->backs[back].from, number);

            if (best < semi)
                semi = best;
        }
        scan->search[number].semi = semi;
        scan->links[number] = (struct link){scan->found[number].dominator, semi};
    }
    memscope_array_unmap(scan->backs);
    memscope_array_unmap(scan->links);
    memscope_array_unmap(scan->stack.path);
    scan->backs = NULL;
    scan->links = NULL;
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

static bool map_result(struct memscope_dominators *dominators, const struct memscope_heap_graph *graph) {
    size_t node_count = graph->node_count;

    dominators->dominator = memscope_array_map_unwritten(node_count, sizeof *dominators->dominator);
    dominators->retained = memscope_array_map_unwritten(node_count, sizeof *dominators->retained);
    dominators->order = map_numbers(graph, sizeof *dominators->order);
    dominators->dominated = map_numbers(graph, sizeof *dominators->dominated);
    if (dominators->dominator == NULL || dominators->retained == NULL || dominators->order == NULL ||
        dominators->dominated == NULL)
        return false;
    memset(dominators->dominator, 0xff, node_count * sizeof *dominators->dominator);
    memset(dominators->retained, 0, node_count * sizeof *dominators->retained);
    return true;
}

/* How many nodes each dominates, itself included, and their bytes. */
static void add_up(const struct dominator_scan *scan, uint64_t *retained) {
    for (uint32_t number = 1; number <= scan->count; number++)
        scan->search[number].size = 1;
    for (uint32_t number = scan->count; number > 0; number--) {
        uint32_t node = scan->found[number].node, dominator = scan->found[number].dominator;

        retained[node] += scan->graph->bytes[node];
        if (number == 1)
            break;
        retained[scan->found[dominator].node] += retained[node];
        scan->search[dominator].size += scan->search[number].size;
    }
}

/* Preorder: each node is followed by its descendants. */
static void lay_out(const struct dominator_scan *scan, struct memscope_dominators *dominators) {
    scan->search[0].free_position = 0;
    for (uint32_t number = 1; number <= scan->count; number++) {
        uint32_t node = scan->found[number].node, above = number == 1 ? 0 : scan->found[number].dominator;
        uint32_t position = scan->search[above].free_position;

        scan->search[above].free_position += scan->search[number].size;
        scan->search[number].free_position = position + 1;
        dominators->order[position] = node;
        dominators->dominated[position] = scan->search[number].size;
        dominators->dominator[node] = number == 1 ? node : scan->found[above].node;
    }
}

static bool find_all(struct dominator_scan *scan, struct memscope_dominators *dominators) {
    if (!map_scan(scan))
        return false;
    search_depth_first(scan);
    if (!find_semidominators(scan))
        return false;
    find_dominators(scan);
    if (!map_result(dominators, scan->graph))
        return false;
    dominators->node_count = scan->count;
    add_up(scan, dominators->retained);
    lay_out(scan, dominators);
    return true;
}

enum memscope_status memscope_dominators_find(struct memscope_dominators *dominators,
                                              const struct memscope_heap_graph *graph) {
    struct dominator_scan scan = {.graph = graph};
    bool found;

    memset(dominators, 0, sizeof *dominators);
    found = find_all(&scan, dominators);
    close_scan(&scan);
    if (!found)
        memscope_dominators_close(dominators);
    return found ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;
}

void memscope_dominators_close(struct memscope_dominators *dominators) {
    memscope_array_unmap(dominators->dominator);
    memscope_array_unmap(dominators->retained);
    memscope_array_unmap(dominators->order);
    memscope_array_unmap(dominators->dominated);
    memset(dominators, 0, sizeof *dominators);
}
