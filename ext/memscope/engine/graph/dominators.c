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

struct dominator_scan {
    const struct memscope_heap_graph *graph;
    uint32_t *number; /* of each node; 0: not found yet */
    uint32_t count;

    /* By number: */
    uint32_t *node;
    uint32_t *dominator; /* initially the parent */
    uint32_t *semi;      /* the semidominator; initially the smallest number with an edge to this one from above */
    struct link *links;
    uint32_t *first_back; /* index into back: there begin the nodes found later that have an edge to this one */
    uint32_t *back;

    union {
        struct visit *visits; /* from the root to the node that is being searched */
        uint32_t *path;       /* the path to be compressed */
    } stack;
};

static uint32_t *map_numbers(uint32_t count) {
    return memscope_array_map((size_t)count + 2, sizeof(uint32_t));
}

static bool map_scan(struct dominator_scan *scan, uint32_t count) {
    scan->number = memscope_array_map(scan->graph->node_count, sizeof *scan->number);
    scan->node = map_numbers(count);
    scan->dominator = map_numbers(count);
    scan->semi = map_numbers(count);
    scan->first_back = map_numbers(count);
    scan->stack.visits = memscope_array_map((size_t)count + 1, sizeof *scan->stack.visits);
    return scan->number != NULL && scan->node != NULL && scan->dominator != NULL && scan->semi != NULL &&
           scan->first_back != NULL && scan->stack.visits != NULL;
}

static void close_scan(struct dominator_scan *scan) {
    memscope_array_unmap(scan->number);
    memscope_array_unmap(scan->node);
    memscope_array_unmap(scan->dominator);
    memscope_array_unmap(scan->semi);
    memscope_array_unmap(scan->links);
    memscope_array_unmap(scan->first_back);
    memscope_array_unmap(scan->back);
    memscope_array_unmap(scan->stack.visits);
    memset(scan, 0, sizeof *scan);
}

static struct visit find_node(struct dominator_scan *scan, uint32_t node, uint32_t parent) {
    uint32_t number = ++scan->count;

    scan->number[node] = number;
    scan->node[number] = node;
    scan->dominator[number] = parent;
    scan->semi[number] = parent;
    return (struct visit){number, scan->graph->first_edge[node], scan->graph->first_edge[node + 1]};
}

/* Numbers the nodes, and counts in first_back how many edges lead back to each. */
static void search_depth_first(struct dominator_scan *scan) {
    struct visit *visits = scan->stack.visits, at;
    uint32_t depth = 0;

    visits[depth++] = find_node(scan, memscope_graph_root(scan->graph), 0);
    while (depth > 0) {
        at = visits[--depth];
        while (at.edge < at.end) {
            uint32_t to = scan->graph->edges[at.edge++], number = scan->number[to];

            if (number == 0) {
                visits[depth++] = at;
                at = find_node(scan, to, at.number);
            } else if (number < at.number) {
                scan->first_back[number]++;
            } else if (at.number < scan->semi[number]) {
                scan->semi[number] = at.number;
            }
        }
    }
    memscope_array_unmap(scan->stack.visits);
    scan->stack.visits = NULL;
}

/* Afterwards the edges that lead back to node w come from back[first_back[w]] up to back[first_back[w + 1]]. */
static bool gather_edges_back(struct dominator_scan *scan) {
    uint32_t sum = 0;

    for (uint32_t number = 1; number <= scan->count; number++)
        scan->first_back[number] = sum += scan->first_back[number];
    scan->first_back[scan->count + 1] = sum;
    if ((scan->back = memscope_array_map(sum, sizeof *scan->back)) == NULL)
        return false;
    for (uint32_t number = 1; number <= scan->count; number++) {
        uint32_t node = scan->node[number];

        for (uint32_t edge = scan->graph->first_edge[node]; edge < scan->graph->first_edge[node + 1]; edge++) {
            uint32_t to = scan->number[scan->graph->edges[edge]];

            if (to < number)
                scan->back[--scan->first_back[to]] = number;
        }
    }
    memscope_array_unmap(scan->number);
    scan->number = NULL;
    return true;
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

static bool find_semidominators(struct dominator_scan *scan) {
    scan->links = memscope_array_map((size_t)scan->count + 1, sizeof *scan->links);
    scan->stack.path = map_numbers(scan->count);
    if (scan->links == NULL || scan->stack.path == NULL)
        return false;
    for (uint32_t number = scan->count; number > 1; number--) {
        uint32_t semi = scan->semi[number];

        for (uint32_t edge = scan->first_back[number]; edge < scan->first_back[number + 1]; edge++) {
            uint32_t best = best_above(scan, scan->back[edge], number);

            if (best < semi)
                semi = best;
        }
        scan->semi[number] = semi;
        scan->links[number] = (struct link){scan->dominator[number], semi};
    }
    return true;
}

/* A node's dominator is the nearest common ancestor, in the tree of dominators, of its parent and its semidominator. */
static void find_dominators(struct dominator_scan *scan) {
    for (uint32_t number = 2; number <= scan->count; number++) {
        uint32_t dominator = scan->dominator[number];

        while (dominator > scan->semi[number])
            dominator = scan->dominator[dominator];
        scan->dominator[number] = dominator;
    }
}

static bool map_result(struct memscope_dominators *dominators, uint32_t node_count, uint32_t reached) {
    dominators->dominator = memscope_array_map(node_count, sizeof *dominators->dominator);
    dominators->retained = memscope_array_map(node_count, sizeof *dominators->retained);
    dominators->order = map_numbers(reached);
    dominators->dominated = map_numbers(reached);
    dominators->node_count = reached;
    if (dominators->dominator == NULL || dominators->retained == NULL || dominators->order == NULL ||
        dominators->dominated == NULL)
        return false;
    memset(dominators->dominator, 0xff, node_count * sizeof *dominators->dominator);
    return true;
}

/* Preorder: each node is followed by its descendants. semi is reused for the next free position below each node. */
static void lay_out(struct dominator_scan *scan, struct memscope_dominators *dominators) {
    uint32_t *sizes = scan->first_back, *free_position = scan->semi;

    for (uint32_t number = 1; number <= scan->count; number++)
        sizes[number] = 1;
    for (uint32_t number = scan->count; number > 1; number--)
        sizes[scan->dominator[number]] += sizes[number];
    free_position[0] = 0;
    for (uint32_t number = 1; number <= scan->count; number++) {
        uint32_t position = free_position[scan->dominator[number]];

        free_position[scan->dominator[number]] += sizes[number];
        free_position[number] = position + 1;
        dominators->order[position] = scan->node[number];
        dominators->dominated[position] = sizes[number];
    }
}

static void add_up_retained(struct dominator_scan *scan, struct memscope_dominators *dominators) {
    for (uint32_t number = scan->count; number > 0; number--) {
        uint32_t node = scan->node[number], above = scan->node[number == 1 ? 1 : scan->dominator[number]];

        dominators->dominator[node] = above;
        dominators->retained[node] += scan->graph->bytes[node];
        if (number > 1)
            dominators->retained[above] += dominators->retained[node];
    }
}

static bool find_all(struct dominator_scan *scan, struct memscope_dominators *dominators, uint32_t reached) {
    if (!map_scan(scan, reached))
        return false;
    search_depth_first(scan);
    if (!gather_edges_back(scan) || !find_semidominators(scan))
        return false;
    memscope_array_unmap(scan->back);
    memscope_array_unmap(scan->links);
    memscope_array_unmap(scan->stack.path);
    scan->back = NULL;
    scan->links = NULL;
    scan->stack.path = NULL;
    find_dominators(scan);
    if (!map_result(dominators, scan->graph->node_count, scan->count))
        return false;
    lay_out(scan, dominators);
    add_up_retained(scan, dominators);
    return true;
}

enum memscope_status memscope_dominators_find(struct memscope_dominators *dominators,
                                              const struct memscope_heap_graph *graph, uint32_t reached_count) {
    struct dominator_scan scan = {.graph = graph};
    bool found;

    memset(dominators, 0, sizeof *dominators);
    found = find_all(&scan, dominators, reached_count);
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
