#include "graph/shortest_paths.h"

#include "base/mapped_array.h"

#include <string.h>

/* Nodes still to search, in the order in which they were found. Nodes to search last are kept back. */
struct search {
    const struct memscope_heap_graph *graph;
    uint32_t *parent;
    uint32_t *queue, *kept_back;
    uint32_t found, kept_count, node_count;
    uint32_t last_category; /* its node */
    uint8_t *last_classes;  /* by name, NULL if none */
};

static bool map_search(struct search *search, const struct memscope_search_last *last) {
    size_t nodes = search->graph->node_count;

    search->parent = memscope_array_map_unwritten(nodes, sizeof *search->parent);
    search->queue = memscope_array_map_unwritten(nodes + 1, sizeof *search->queue); /* dominators reuse the memory */
    search->kept_back = memscope_array_map_sparse(nodes, sizeof *search->kept_back);
    if (search->parent == NULL || search->queue == NULL || search->kept_back == NULL)
        return false;
    memset(search->parent, 0xff, nodes * sizeof *search->parent);
    if (last->class_count == 0)
        return true;
    search->last_classes = memscope_array_map(search->graph->names.count, sizeof *search->last_classes);
    for (size_t index = 0; search->last_classes != NULL && index < last->class_count; index++)
        if (last->classes[index] != 0 && last->classes[index] < search->graph->names.count)
            search->last_classes[last->classes[index]] = 1;
    return search->last_classes != NULL;
}

static bool comes_last(const struct search *search, uint32_t node) {
    return search->last_classes != NULL && node < search->graph->slot_count &&
           search->last_classes[search->graph->node_class[node]];
}

static void look_at(struct search *search, uint32_t node) {
    const struct memscope_heap_graph *graph = search->graph;

    for (uint32_t edge = graph->first_edge[node]; edge < graph->first_edge[node + 1]; edge++) {
        uint32_t to = graph->edges[edge];

        if (search->parent[to] != MEMSCOPE_NO_NODE)
            continue;
        search->parent[to] = node;
        if (comes_last(search, to))
            search->kept_back[search->kept_count++] = to;
        else if (to != search->last_category)
            search->queue[search->found++] = to;
    }
}

static void look_at_all(struct search *search) {
    for (uint32_t taken = 0, kept = 0; taken < search->found || kept < search->kept_count;) {
        while (taken < search->found)
            look_at(search, search->queue[taken++]);
        while (kept < search->kept_count)
            look_at(search, search->kept_back[kept++]);
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
    for (uint32_t slot = 0; slot < graph->slot_count; slot++)
        if (graph->type[slot] != 0)
            memscope_heap_part_add(memscope_reaches(paths, slot) ? &paths->reachable : &paths->garbage, graph, slot);
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
    memscope_array_unmap(search.queue);
    memscope_array_unmap(search.kept_back);
    memscope_array_unmap(search.last_classes);
    return status;
}

void memscope_shortest_paths_close(struct memscope_shortest_paths *paths) {
    memscope_array_unmap(paths->parent);
    memset(paths, 0, sizeof *paths);
}
