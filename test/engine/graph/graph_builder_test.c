#include "../expect.h"
#include "graph/graph_builder.h"

#include <string.h>

static void expect_edges(const struct memscope_heap_graph *graph, uint32_t node, const char *expected) {
    char got[256] = "";

    for (uint32_t edge = graph->first_edge[node]; edge < graph->first_edge[node + 1]; edge++)
        snprintf(got + strlen(got), sizeof got - strlen(got), " %u", graph->edges[edge]);
    if (strcmp(got, expected) != 0)
        fprintf(stderr, "node %u: expected%s, got%s\n", node, expected, got);
    EXPECT(strcmp(got, expected) == 0);
}

static void test_builds(void) {
    struct memscope_graph_builder builder;
    struct memscope_heap_graph graph;

    EXPECT(memscope_graph_open(&builder, &graph, 5, 0, 0) == MEMSCOPE_OK);
    EXPECT(graph.slot_bytes == NULL && graph.edge_names == NULL);
    graph.type[0] = graph.type[1] = graph.type[3] = 5;
    memscope_graph_from(&builder, 1);
    memscope_graph_to(&builder, 3, 0);
    memscope_graph_to(&builder, 0, 0);
    memscope_graph_to(&builder, 3, 0);
    memscope_graph_to(&builder, 1, 0);
    memscope_graph_to(&builder, 5, 0);
    memscope_graph_from(&builder, 3);
    memscope_graph_to(&builder, 1, 0);
    memscope_graph_root_to(&builder, "vm", 1);
    memscope_graph_root_to(&builder, "global_tbl", 3);
    memscope_graph_root_to(&builder, "vm", 0);
    memscope_graph_root_to(&builder, "vm", 1);
    memscope_graph_root_to(&builder, "vm", 5);
    EXPECT(memscope_graph_finish(&builder) == MEMSCOPE_OK);
    EXPECT(graph.object_count == 3 && graph.category_count == 2 && graph.node_count == 8 && graph.edge_count == 9);
    EXPECT(memscope_graph_root(&graph) == 7 && strcmp(graph.categories[1], "global_tbl") == 0);
    expect_edges(&graph, 0, "");
    expect_edges(&graph, 1, " 3 0 1");
    expect_edges(&graph, 2, "");
    expect_edges(&graph, 3, " 1");
    expect_edges(&graph, 4, "");
    expect_edges(&graph, 5, " 1 0");
    expect_edges(&graph, 6, " 3");
    expect_edges(&graph, 7, " 5 6");
    memscope_graph_close(&graph);
    memscope_graph_close(&graph);
    memscope_graph_abandon(&builder);
}

/* Two nodes with many edges, each added three times; a later name replaces MEMSCOPE_EDGE_INTERNAL. */
static void test_drops_what_is_twice(void) {
    struct memscope_graph_builder builder;
    struct memscope_heap_graph graph;
    memscope_edge_name ivar = MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_IVAR, 7);

    EXPECT(memscope_graph_open(&builder, &graph, 5000, 10, MEMSCOPE_GRAPH_EDGE_NAMES | MEMSCOPE_GRAPH_SLOT_BYTES) ==
           MEMSCOPE_OK);
    EXPECT(graph.slot_bytes != NULL);
    for (uint32_t from = 10; from <= 20; from += 10) {
        memscope_graph_from(&builder, from);
        for (uint32_t round = 0; round < 3; round++)
            for (uint32_t to = 0; to < 5000; to++)
                memscope_graph_to(&builder, to,
                                  round == 2 && to % 2 ? MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_INDEX, 1)
                                  : to % 3             ? MEMSCOPE_EDGE_INTERNAL
                                                       : ivar);
    }
    EXPECT(memscope_graph_finish(&builder) == MEMSCOPE_OK);
    EXPECT(graph.edge_count == 10000);
    for (uint32_t to = 0; to < 5000; to++) {
        EXPECT(graph.edges[graph.first_edge[10] + to] == to && graph.edges[graph.first_edge[20] + to] == to);
        EXPECT(graph.edge_names[graph.first_edge[20] + to] == (to % 3 == 0 ? ivar
                                                               : to % 2    ? MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_INDEX, 1)
                                                                           : MEMSCOPE_EDGE_INTERNAL));
    }
    memscope_graph_close(&graph);
}

static void test_more_categories_than_there_is_room_for(void) {
    static char names[100][8];
    struct memscope_graph_builder builder;
    struct memscope_heap_graph graph;

    EXPECT(memscope_graph_open(&builder, &graph, 100, 0, 0) == MEMSCOPE_OK);
    for (uint32_t slot = 0; slot < 100; slot++) {
        snprintf(names[slot], sizeof names[slot], "c%u", slot);
        memscope_graph_root_to(&builder, names[slot], slot);
    }
    EXPECT(memscope_graph_finish(&builder) == MEMSCOPE_OK);
    EXPECT(graph.category_count == MEMSCOPE_ROOT_CATEGORIES);
    expect_edges(&graph, memscope_graph_category_node(&graph, 62), " 62");
    EXPECT(graph.first_edge[164] - graph.first_edge[163] == 37);
    memscope_graph_close(&graph);
}

static void test_refuses(void) {
    struct memscope_graph_builder builder;
    struct memscope_heap_graph graph;

    EXPECT(memscope_graph_open(&builder, &graph, UINT32_MAX - 60, 0, 0) == MEMSCOPE_TRUNCATED);
    memscope_graph_abandon(&builder);
    EXPECT(memscope_graph_open(&builder, &graph, 4, 0, 0) == MEMSCOPE_OK);
    memscope_graph_abandon(&builder);
    EXPECT(graph.edges == NULL);
    for (uint32_t slot = 1; slot <= 70; slot += 69) {
        EXPECT(memscope_graph_open(&builder, &graph, 4, 0, 0) == MEMSCOPE_OK);
        memscope_graph_from(&builder, 3);
        memscope_graph_from(&builder, slot);
        memscope_graph_to(&builder, 1, 0);
        EXPECT(memscope_graph_finish(&builder) == MEMSCOPE_MALFORMED && graph.edges == NULL);
    }
}

int main(void) {
    test_builds();
    test_drops_what_is_twice();
    test_more_categories_than_there_is_room_for();
    test_refuses();
    return 0;
}
