#include "graph/graph_builder.h"

#include "base/mapped_array.h"

#include <string.h>

#define FEW_EDGES 16 /* of one node: below this number, comparing with each is faster than marks */
#define SLOT_LIMIT (MEMSCOPE_NO_NODE - MEMSCOPE_ROOT_CATEGORIES - 2)
#define EDGE_LIMIT (UINT32_MAX - 1)

bool memscope_graph_reserve(struct memscope_heap_graph *graph, size_t slot_count, unsigned parts) {
    size_t nodes = slot_count + MEMSCOPE_ROOT_CATEGORIES + 1;

    /* All arrays are indexed by node, so that no reader needs to check if a node is a slot. */
    return MEMSCOPE_ARRAY_RESERVE(graph->type, nodes) && MEMSCOPE_ARRAY_RESERVE(graph->node_class, nodes) &&
           MEMSCOPE_ARRAY_RESERVE(graph->bytes, nodes) &&
           (!(parts & MEMSCOPE_GRAPH_SLOT_BYTES) || MEMSCOPE_ARRAY_RESERVE(graph->slot_bytes, nodes));
}

static bool reserve_edges(struct memscope_graph_builder *builder, size_t count) {
    struct memscope_heap_graph *graph = builder->graph;

    builder->edges_reserved = count < EDGE_LIMIT ? (uint32_t)count : EDGE_LIMIT;
    return MEMSCOPE_ARRAY_RESERVE(graph->edges, builder->edges_reserved) &&
           (!(builder->parts & MEMSCOPE_GRAPH_EDGE_NAMES) ||
            MEMSCOPE_ARRAY_RESERVE(graph->edge_names, builder->edges_reserved));
}

enum memscope_status memscope_graph_begin(struct memscope_graph_builder *builder, struct memscope_heap_graph *graph,
                                          size_t slot_count, size_t expected_edges, unsigned parts) {
    enum memscope_status status = slot_count > SLOT_LIMIT ? MEMSCOPE_TRUNCATED : MEMSCOPE_NO_MEMORY;

    *builder = (struct memscope_graph_builder){.graph = graph, .parts = parts};
    if (slot_count <= SLOT_LIMIT && memscope_graph_reserve(graph, slot_count, parts) &&
        reserve_edges(builder, expected_edges + 1024)) {
        graph->slot_count = (uint32_t)slot_count;
        graph->first_edge = memscope_array_map(slot_count + MEMSCOPE_ROOT_CATEGORIES + 2, sizeof *graph->first_edge);
        builder->marks = memscope_array_map_sparse(slot_count + 1, sizeof *builder->marks);
        if (graph->first_edge != NULL && builder->marks != NULL)
            return MEMSCOPE_OK;
    }
    memscope_graph_abandon(builder);
    return status;
}

enum memscope_status memscope_graph_open(struct memscope_graph_builder *builder, struct memscope_heap_graph *graph,
                                         size_t slot_count, size_t expected_edges, unsigned parts) {
    memset(graph, 0, sizeof *graph);
    memset(builder, 0, sizeof *builder);
    if (memscope_names_open(&graph->names) != MEMSCOPE_OK)
        return MEMSCOPE_NO_MEMORY;
    return memscope_graph_begin(builder, graph, slot_count, expected_edges, parts);
}

static void close_builder(struct memscope_graph_builder *builder) {
    memscope_arrays_unmap(builder->marks, builder->roots);
    memset(builder, 0, sizeof *builder);
}

void memscope_graph_abandon(struct memscope_graph_builder *builder) {
    if (builder->graph != NULL)
        memscope_graph_close(builder->graph);
    close_builder(builder);
}

void memscope_graph_close(struct memscope_heap_graph *graph) {
    memscope_arrays_unmap(graph->type, graph->node_class, graph->slot_bytes, graph->bytes, graph->first_edge,
                          graph->edges, graph->edge_names);
    memscope_names_close(&graph->names);
    memset(graph, 0, sizeof *graph);
}

static void fail(struct memscope_graph_builder *builder, enum memscope_status status) {
    if (builder->status == MEMSCOPE_OK)
        builder->status = status;
}

void memscope_graph_from(struct memscope_graph_builder *builder, uint32_t slot) {
    struct memscope_heap_graph *graph = builder->graph;

    if (slot > graph->slot_count + MEMSCOPE_ROOT_CATEGORIES || slot + 1 < builder->next)
        return fail(builder, MEMSCOPE_MALFORMED);
    while (builder->next <= slot)
        graph->first_edge[builder->next++] = graph->edge_count;
    builder->node = slot;
}

/* The current node's edge to a slot, edge_count if there is none. */
static uint32_t find_edge(struct memscope_graph_builder *builder, uint32_t slot) {
    struct memscope_heap_graph *graph = builder->graph;
    uint32_t first = graph->first_edge[builder->node], count = graph->edge_count, marked;

    if (count - first < FEW_EDGES) {
        for (uint32_t edge = first; edge < count; edge++)
            if (graph->edges[edge] == slot)
                return edge;
        return count;
    }
    if (count - first == FEW_EDGES)
        for (uint32_t edge = first; edge < count; edge++)
            builder->marks[graph->edges[edge]] = edge + 1;
    /* Marks of earlier nodes are `first` or less. */
    marked = builder->marks[slot];
    if (marked > first)
        return marked - 1;
    builder->marks[slot] = count + 1;
    return count;
}

static bool reserve_edge(struct memscope_graph_builder *builder) {
    if (builder->graph->edge_count < builder->edges_reserved)
        return true;
    if (builder->edges_reserved == EDGE_LIMIT)
        fail(builder, MEMSCOPE_TRUNCATED);
    else if (!reserve_edges(builder, 2 * (size_t)builder->edges_reserved))
        fail(builder, MEMSCOPE_NO_MEMORY);
    return builder->status == MEMSCOPE_OK;
}

void memscope_graph_to(struct memscope_graph_builder *builder, uint32_t slot, memscope_edge_name name) {
    struct memscope_heap_graph *graph = builder->graph;
    uint32_t edge;

    if (builder->status != MEMSCOPE_OK || slot >= graph->slot_count || !reserve_edge(builder))
        return;
    edge = find_edge(builder, slot);
    if (edge == graph->edge_count)
        graph->edges[graph->edge_count++] = slot;
    else if (graph->edge_names == NULL || graph->edge_names[edge] != MEMSCOPE_EDGE_INTERNAL)
        return;
    if (graph->edge_names != NULL)
        graph->edge_names[edge] = name;
}

static uint32_t category_number(struct memscope_heap_graph *graph, const char *category) {
    uint32_t number = 0;

    while (number < graph->category_count && graph->categories[number] != category &&
           strcmp(graph->categories[number], category) != 0)
        number++;
    if (number == MEMSCOPE_ROOT_CATEGORIES)
        return number - 1;
    if (number == graph->category_count)
        graph->categories[graph->category_count++] = category;
    return number;
}

void memscope_graph_root_to(struct memscope_graph_builder *builder, const char *category, uint32_t slot) {
    if (builder->status != MEMSCOPE_OK || slot >= builder->graph->slot_count)
        return;
    if (builder->root_count == UINT32_MAX || !MEMSCOPE_ARRAY_RESERVE(builder->roots, (size_t)builder->root_count + 1))
        return fail(builder, MEMSCOPE_NO_MEMORY);
    builder->roots[builder->root_count].category = category_number(builder->graph, category);
    builder->roots[builder->root_count++].to = slot;
}

static void add_roots(struct memscope_graph_builder *builder) {
    struct memscope_heap_graph *graph = builder->graph;

    for (uint32_t category = 0; category < graph->category_count; category++) {
        memscope_graph_from(builder, memscope_graph_category_node(graph, category));
        for (uint32_t root = 0; root < builder->root_count; root++)
            if (builder->roots[root].category == category)
                memscope_graph_to(builder, builder->roots[root].to, MEMSCOPE_EDGE_INTERNAL);
    }
}

/* The root's edges to the categories. memscope_graph_to would ignore them, since a category's node is not a slot. */
static void add_categories(struct memscope_graph_builder *builder) {
    struct memscope_heap_graph *graph = builder->graph;

    memscope_graph_from(builder, memscope_graph_root(graph));
    for (uint32_t category = 0; category < graph->category_count && reserve_edge(builder); category++) {
        if (graph->edge_names != NULL)
            graph->edge_names[graph->edge_count] = MEMSCOPE_EDGE_INTERNAL;
        graph->edges[graph->edge_count++] = memscope_graph_category_node(graph, category);
    }
    graph->first_edge[graph->node_count] = graph->edge_count;
}

enum memscope_status memscope_graph_finish(struct memscope_graph_builder *builder) {
    struct memscope_heap_graph *graph = builder->graph;
    enum memscope_status status;

    graph->node_count = graph->slot_count + graph->category_count + 1;
    add_roots(builder);
    add_categories(builder);
    for (uint32_t slot = 0; slot < graph->slot_count; slot++)
        graph->object_count += graph->type[slot] != 0;
    status = builder->status;
    close_builder(builder);
    if (status != MEMSCOPE_OK)
        memscope_graph_close(graph);
    return status;
}
