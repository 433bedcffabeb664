#include "planted.h"

static void expect_path(const struct planted *planted, uint32_t node, const char *expected) {
    uint32_t root = memscope_graph_root(&planted->graph);
    char path[256] = "";

    for (; memscope_reaches(&planted->paths, node) && node != root; node = planted->paths.parent[node])
        snprintf(path + strlen(path), sizeof path - strlen(path), " %u", node);
    if (strcmp(path, expected) != 0)
        fprintf(stderr, "expected%s, got%s\n", expected, path);
    EXPECT(strcmp(path, expected) == 0);
}

static void test_by_hand(void) {
    struct planted planted;

    plant(&planted, 8,
          "0 Array 100 1 2\n1 String 10 3\n2 String 20 3 4\n3 String 30 0\n4 Hash 40\n5 Array 7 6\n6 String 8 5 0\n"
          "vm 0\nglobal_tbl 4");
    expect_path(&planted, 3, " 3 1 0 8");
    expect_path(&planted, 4, " 4 9");
    expect_path(&planted, 5, "");
    expect_path(&planted, 7, "");
    EXPECT(planted.paths.node_count == 5 + 3);
    EXPECT(planted.paths.reachable.count == 5 && planted.paths.reachable.bytes == 200);
    EXPECT(planted.paths.garbage.count == 2 && planted.paths.garbage.bytes == 15);
    EXPECT(planted.paths.garbage.slot_bytes == 0);
    uproot(&planted);
    memscope_shortest_paths_close(&planted.paths);
}

/* What the stack of this thread holds is reached in another way if there is one, by whatever detour. */
static void test_the_own_stack_comes_last(void) {
    struct planted planted;

    plant(&planted, 5, "0 Array 1 1\n1 Array 1 2\n2 Array 1 3\n3 Array 1\n4 String 1\nmachine_context 2 4 3\nvm 0");
    expect_path(&planted, 3, " 3 2 1 0 6");
    expect_path(&planted, 4, " 4 5");
    EXPECT(planted.paths.node_count == 5 + 3 && planted.paths.garbage.count == 0);
    uproot(&planted);
}

/* Classes that are to be searched last come last too, but before the stack. */
static void test_classes_come_last(void) {
    struct planted planted;
    struct memscope_shortest_paths paths;
    struct memscope_search_last last = {.category = "machine_context", .class_count = 2};
    uint32_t classes[2];

    plant(&planted, 7,
          "0 Cache 1 3 4\n1 Array 1 2\n2 Array 1 3\n3 String 1\n4 Cache 1 5\n5 String 1\n6 String 1\n"
          "vm 0 1\nmachine_context 5 6");
    expect_path(&planted, 3, " 3 0 7");
    classes[0] = planted_class(&planted, "Cache");
    classes[1] = 4711;
    last.classes = classes;
    EXPECT(memscope_shortest_paths_find(&paths, &planted.graph, &last) == MEMSCOPE_OK);
    EXPECT(paths.parent[3] == 2 && paths.parent[0] == 7 && paths.parent[5] == 4 && paths.parent[6] == 8);
    EXPECT(paths.node_count == planted.paths.node_count && paths.reachable.count == 7);
    memscope_shortest_paths_close(&paths);
    uproot(&planted);
}

static void test_no_roots(void) {
    struct planted planted;

    plant(&planted, 2, "0 String 3\n1 String 4");
    EXPECT(planted.paths.node_count == 1 && planted.paths.reachable.count == 0 && planted.paths.garbage.bytes == 7);
    EXPECT(planted.graph.category_count == 0);
    uproot(&planted);
}

/* Relaxes all edges until nothing changes. */
static void measure(const struct memscope_heap_graph *graph, uint32_t *lengths, uint32_t without) {
    uint32_t root = memscope_graph_root(graph);

    memset(lengths, 0xff, graph->node_count * sizeof *lengths);
    lengths[root] = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t node = 0; node < graph->node_count; node++)
            for (uint32_t edge = graph->first_edge[node]; edge < graph->first_edge[node + 1]; edge++)
                if (lengths[node] != UINT32_MAX && graph->edges[edge] != without &&
                    lengths[node] + 1 < lengths[graph->edges[edge]]) {
                    lengths[graph->edges[edge]] = lengths[node] + 1;
                    changed = true;
                }
    }
}

static uint32_t length(const struct planted *planted, uint32_t node) {
    uint32_t steps = 0;

    for (; planted->paths.parent[node] != node; node = planted->paths.parent[node])
        steps++;
    return steps;
}

static void test_lengths_equal_naive_ones(void) {
    uint32_t all[400], without_stack[400];

    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct planted planted;
        uint32_t stack = MEMSCOPE_NO_NODE;

        plant_random(&planted, 300, seed);
        for (uint32_t number = 0; number < planted.graph.category_count; number++)
            if (strcmp(planted.graph.categories[number], "machine_context") == 0)
                stack = memscope_graph_category_node(&planted.graph, number);
        measure(&planted.graph, all, MEMSCOPE_NO_NODE);
        measure(&planted.graph, without_stack, stack);
        for (uint32_t node = 0; node < planted.graph.node_count; node++) {
            EXPECT(memscope_reaches(&planted.paths, node) == (all[node] != UINT32_MAX));
            if (without_stack[node] != UINT32_MAX)
                EXPECT(length(&planted, node) == without_stack[node]);
        }
        uproot(&planted);
    }
}

int main(void) {
    test_by_hand();
    test_the_own_stack_comes_last();
    test_classes_come_last();
    test_no_roots();
    test_lengths_equal_naive_ones();
    return 0;
}
