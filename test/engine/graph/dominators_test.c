#include "planted.h"

/* Full size in one flavour of the build only; the others check the same code for other faults. */
#ifdef __OPTIMIZE__
#define LIST_NODES 2000000
#define RANDOM_GRAPHS 1000
#else
#define LIST_NODES 200000
#define RANDOM_GRAPHS 100
#endif

static void expect_dominators(const struct planted *planted, const char *expected) {
    char got[512] = "";

    for (uint32_t slot = 0; slot < planted->graph.slot_count; slot++) {
        size_t length = strlen(got);

        if (planted->dominators.dominator[slot] == MEMSCOPE_NO_NODE)
            snprintf(got + length, sizeof got - length, " -");
        else
            snprintf(got + length, sizeof got - length, " %u:%lu", planted->dominators.dominator[slot],
                     (unsigned long)planted->dominators.retained[slot]);
    }
    if (strcmp(got, expected) != 0)
        fprintf(stderr, "expected%s\n     got%s\n", expected, got);
    EXPECT(strcmp(got, expected) == 0);
}

static void test_by_hand(void) {
    struct planted planted;

    /* A chain; 4 is the category, 5 the root. */
    plant(&planted, 4, "0 A 1 1\n1 A 2 2\n2 A 3 3\n3 A 4\nvm 0");
    expect_dominators(&planted, " 4:10 0:9 1:7 2:4");
    EXPECT(planted.dominators.retained[5] == 10 && planted.dominators.dominator[5] == 5);
    uproot(&planted);

    /* A tree, with an edge back up. */
    plant(&planted, 7, "0 A 1 1 2\n1 A 1 3 4\n2 A 1 5 6\n3 A 1\n4 A 1\n5 A 1 0\n6 A 1\nvm 0");
    expect_dominators(&planted, " 7:7 0:3 0:3 1:1 1:1 2:1 2:1");
    uproot(&planted);

    /* A diamond; what two hold belongs to whoever holds both. */
    plant(&planted, 5, "0 A 1 1 2\n1 A 10 3\n2 A 100 3\n3 A 1000 4\n4 A 10000\nvm 0");
    expect_dominators(&planted, " 5:11111 0:10 0:100 0:11000 3:10000");
    uproot(&planted);

    /* The same from two categories: only the root holds both. */
    plant(&planted, 3, "0 A 1 2\n1 A 10 2\n2 A 100\nvm 0\nglobal_tbl 1");
    expect_dominators(&planted, " 3:1 4:10 5:100");
    uproot(&planted);

    /* A cycle entered in one place, one entered in two, and one that nobody enters. */
    plant(&planted, 9, "0 A 1 1\n1 A 1 2\n2 A 1 0\n3 A 1 4\n4 A 1 5\n5 A 1 3\n6 A 1 7\n7 A 1 6 0\nvm 0 3 4");
    expect_dominators(&planted, " 9:3 0:2 1:1 9:1 9:2 4:1 - - -");
    uproot(&planted);
    memscope_dominators_close(&planted.dominators);

    /* Saturated sizes add up in 64 bits. */
    plant(&planted, 3, "0 A 4294967295 1 2\n1 A 4294967295\n2 A 4294967295\nvm 0");
    expect_dominators(&planted, " 3:12884901885 0:4294967295 0:4294967295");
    uproot(&planted);
}

static void test_nothing_is_reached(void) {
    struct planted planted;

    plant(&planted, 1, "0 A 5");
    expect_dominators(&planted, " -");
    EXPECT(planted.dominators.node_count == 1 && planted.dominators.tree[0].node == 1);
    uproot(&planted);
}

static void expect_list(const struct planted *planted, uint32_t nodes) {
    for (uint32_t slot = 0; slot < nodes; slot++) {
        EXPECT(planted->dominators.retained[slot] == 40 * (uint64_t)(nodes - slot) + (slot == 0 ? 500 : 0));
        EXPECT(planted->dominators.dominator[slot] == (slot == 0 ? nodes + 1 : slot - 1));
    }
    EXPECT(planted->dominators.dominator[nodes] == 0);
}

/* Takes quadratic time with some methods, and is too deep for recursion. */
static void test_a_long_list(void) {
    struct planted planted;

    plant_list(&planted, LIST_NODES);
    expect_list(&planted, LIST_NODES);
    uproot(&planted);
}

/* The nodes that the root reaches if one is removed. */
static void reach_without(const struct memscope_heap_graph *graph, uint32_t removed, bool *reached, uint32_t *stack) {
    uint32_t depth = 0, root = memscope_graph_root(graph);

    memset(reached, 0, graph->node_count * sizeof *reached);
    reached[root] = removed != root;
    if (removed != root)
        stack[depth++] = root;
    while (depth > 0) {
        uint32_t node = stack[--depth];

        for (uint32_t edge = graph->first_edge[node]; edge < graph->first_edge[node + 1]; edge++) {
            uint32_t to = graph->edges[edge];

            if (to != removed && !reached[to]) {
                reached[to] = true;
                stack[depth++] = to;
            }
        }
    }
}

/* A node dominates those that are lost with it; the immediate dominator is the one with which the fewest are lost. */
static void expect_naive(const struct planted *planted) {
    const struct memscope_heap_graph *graph = &planted->graph;
    static bool dominates[400][400];
    bool reached[400];
    uint32_t stack[400], lost[400] = {0};

    for (uint32_t node = 0; node < graph->node_count; node++) {
        uint64_t retained = 0;

        reach_without(graph, node, reached, stack);
        for (uint32_t other = 0; other < graph->node_count; other++) {
            dominates[node][other] = memscope_reaches(&planted->paths, other) && !reached[other];
            retained += dominates[node][other] ? graph->bytes[other] : 0;
            lost[node] += dominates[node][other];
        }
        if (memscope_reaches(&planted->paths, node))
            EXPECT(planted->dominators.retained[node] == retained);
        else
            EXPECT(planted->dominators.dominator[node] == MEMSCOPE_NO_NODE);
    }
    for (uint32_t node = 0; node + 1 < graph->node_count; node++) {
        uint32_t nearest = memscope_graph_root(graph);

        for (uint32_t other = 0; other < graph->node_count; other++)
            if (other != node && dominates[other][node] && lost[other] < lost[nearest])
                nearest = other;
        if (memscope_reaches(&planted->paths, node))
            EXPECT(planted->dominators.dominator[node] == nearest);
    }
}

/* Each node occurs once, and right after it those nodes, and only those, that it dominates. */
static void expect_order(const struct planted *planted) {
    const struct memscope_dominators *found = &planted->dominators;
    uint32_t position_of[400];

    memset(position_of, 0xff, sizeof position_of);
    for (uint32_t position = 0; position < found->node_count; position++) {
        EXPECT(position_of[found->tree[position].node] == UINT32_MAX);
        position_of[found->tree[position].node] = position;
    }
    for (uint32_t position = 0; position < found->node_count; position++) {
        uint64_t retained = 0;
        uint32_t above = position_of[found->dominator[found->tree[position].node]];

        EXPECT(above <= position && position < above + found->tree[above].count);
        for (uint32_t below = position; below < position + found->tree[position].count; below++)
            retained += planted->graph.bytes[found->tree[below].node];
        EXPECT(found->retained[found->tree[position].node] == retained);
    }
}

static void test_random_graphs_equal_naive_removal(void) {
    for (uint64_t seed = 1; seed <= RANDOM_GRAPHS; seed++) {
        struct planted planted;

        plant_random(&planted, 300, seed);
        expect_order(&planted);
        expect_naive(&planted);
        uproot(&planted);
    }
}

int main(void) {
    test_by_hand();
    test_nothing_is_reached();
    test_a_long_list();
    test_random_graphs_equal_naive_removal();
    return 0;
}
