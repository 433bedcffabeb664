#include "graph/shortest_paths.h"

#include "base/mapped_array.h"

#include <string.h>

/* The parent of a node that is not found yet, and to search last. */
#define COMES_LAST (MEMSCOPE_NO_NODE - 1)

/* Nodes or edges between one stage of prefetching and the next. */
#define AHEAD ((size_t)8)

/* Nodes still to search, in the order in which they were found. Nodes to search last are kept back. */
struct search {
    const struct memscope_heap_graph *graph;
    uint32_t *parent;
    uint32_t *queue, *kept_back;
    uint32_t found, kept_count, node_count;
    uint32_t last_category; /* its node */
};

/* Marks the objects of these classes with COMES_LAST. */
static bool mark_last(struct search *search, const struct memscope_search_last *last) {
    const struct memscope_heap_graph *graph = search->graph;
    uint8_t *classes = memscope_array_map(graph->names.count, sizeof *classes); /* by name */

    if (classes == NULL)
        return false;
    for (size_t index = 0; index < last->class_count; index++)
        if (last->classes[index] != 0 && last->classes[index] < graph->names.count)
            classes[last->classes[index]] = 1;
    for (uint32_t slot = 0; slot < graph->slot_count; slot++)
        if (classes[graph->node_class[slot]])
            search->parent[slot] = COMES_LAST;
    memscope_array_unmap(classes);
    return true;
}

static bool map_search(struct search *search, const struct memscope_search_last *last) {
    size_t nodes = search->graph->node_count;

    search->parent = memscope_array_map_unwritten(nodes, sizeof *search->parent);
    search->queue = memscope_array_map_unwritten(nodes + 1, sizeof *search->queue); /* dominators reuse the memory */
    search->kept_back = memscope_array_map_sparse(nodes, sizeof *search->kept_back);
    if (search->parent == NULL || search->queue == NULL || search->kept_back == NULL)
        return false;
    memset(search->parent, 0xff, nodes * sizeof *search->parent);
    return last->class_count == 0 || mark_last(search, last);
}

/*
 * Prefetches what look_at will read for the nodes further on in a list: of each, first where its edges are, then the
 * edges, then the parents of the nodes to which the first of them lead.
 */
static inline __attribute__((always_inline)) void look_ahead(const struct search *search, const uint32_t *nodes,
                                                             uint32_t count) {
    const struct memscope_heap_graph *graph = search->graph;

    if (count > 3 * AHEAD)
        __builtin_prefetch(&graph->first_edge[nodes[3 * AHEAD]]);
    if (count > 2 * AHEAD)
        __builtin_prefetch(&graph->edges[graph->first_edge[nodes[2 * AHEAD]]]);
    if (count > AHEAD) {
        uint32_t first = graph->first_edge[nodes[AHEAD]], end = graph->first_edge[nodes[AHEAD] + 1];

        for (uint32_t edge = first; edge < end && edge < first + AHEAD; edge++)
            __builtin_prefetch(&search->parent[graph->edges[edge]], 1);
    }
}

static inline void look_at(struct search *search, uint32_t node) {
    const struct memscope_heap_graph *graph = search->graph;
    uint32_t end = graph->first_edge[node + 1];

    for (uint32_t edge = graph->first_edge[node]; edge < end; edge++) {
        uint32_t to = graph->edges[edge], before = search->parent[to];

        if (end - edge > AHEAD)
            __builtin_prefetch(&search->parent[graph->edges[edge + AHEAD]], 1);
        if (before < COMES_LAST)
            continue;
        search->parent[to] = node;
        if (before == COMES_LAST)
            search->kept_back[search->kept_count++] = to;
        else if (to != search->last_category)
            search->queue[search->found++] = to;
    }
}

/* Looks at the nodes of a list from `taken` on, until no more are added to it. Returns how many the list then has. */
static uint32_t look_at_list(struct search *search, const uint32_t *nodes, uint32_t taken, const uint32_t *count) {
    for (; taken < *count; taken++) {
        look_ahead(search, nodes + taken, *count - taken);
        look_at(search, nodes[taken]);
    }
    return taken;
}

static void look_at_all(struct search *search) {
    for (uint32_t taken = 0, kept = 0; taken < search->found || kept < search->kept_count;) {
        taken = look_at_list(search, search->queue, taken, &search->found);
        kept = look_at_list(search, search->kept_back, kept, &search->kept_count);
    }
}

static void search_all(struct search *search, const char *last_category) {
    const struct memscope_heap_graph *graph = search->graph;
    uint32_t root = memscope_graph_root(graph);

    for (uint32_t number = 0; last_category != NULL && number < graph->category_count; number++)
        if (strcmp(graph->categories[number], last_category) == 0)
            search->last_category = memscope_graph_category_node(graph, number);
    search->parent[root] = root;
    search->queue[search->found++] = root;
    look_at_all(search);
    if (search->last_category == MEMSCOPE_NO_NODE)
        return;
    search->node_count = search->found + search->kept_count;
    search->queue[0] = search->last_category;
    search->found = 1;
    search->kept_count = 0;
    look_at_all(search);
}

static void add_up(struct memscope_shortest_paths *paths, const struct memscope_heap_graph *graph) {
    for (uint32_t slot = 0; slot < graph->slot_count; slot++) {
        if (paths->parent[slot] == COMES_LAST)
            paths->parent[slot] = MEMSCOPE_NO_NODE;
        if (graph->type[slot] != 0)
            memscope_heap_part_add(memscope_reaches(paths, slot) ? &paths->reachable : &paths->garbage, graph, slot);
    }
}

enum memscope_status memscope_shortest_paths_find(struct memscope_shortest_paths *paths,
                                                  const struct memscope_heap_graph *graph,
                                                  const struct memscope_search_last *last) {
    struct search search = {.graph = graph, .last_category = MEMSCOPE_NO_NODE};
    enum memscope_status status = MEMSCOPE_NO_MEMORY;

    memset(paths, 0, sizeof *paths);
    if (map_search(&search, last)) {
        search_all(&search, last->category);
        paths->parent = search.parent;
        paths->node_count = search.node_count + search.found + search.kept_count;
        add_up(paths, graph);
        status = MEMSCOPE_OK;
    } else {
        memscope_array_unmap(search.parent);
    }
    memscope_arrays_unmap(search.queue, search.kept_back);
    return status;
}

void memscope_shortest_paths_close(struct memscope_shortest_paths *paths) {
    memscope_array_unmap(paths->parent);
    memset(paths, 0, sizeof *paths);
}
