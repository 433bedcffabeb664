#include "graph/path_groups.h"
#include "planted.h"

static struct memscope_path_group alike[8];
static struct memscope_paths_found found;

static void ask(struct planted *planted, const uint32_t *nodes, size_t node_count, size_t top) {
    struct memscope_path_question question = {.graph = &planted->graph,
                                              .paths = &planted->paths,
                                              .dominators = &planted->dominators,
                                              .nodes = nodes,
                                              .node_count = node_count};

    EXPECT(memscope_path_groups_find(&question, alike, top, &found) == MEMSCOPE_OK);
}

static uint32_t instances[PLANTED_MANY];

static size_t find_instances(const struct planted *planted, const char *class_name) {
    uint32_t class = planted_class(planted, class_name);
    size_t count = 0;

    for (uint32_t slot = 0; slot < planted->graph.slot_count; slot++)
        if (planted->graph.type[slot] != 0 && planted->graph.node_class[slot] == class)
            instances[count++] = slot;
    return count;
}

/* Asks for all objects of a class; the paths whose ends retain most come first. */
static void ask_class(struct planted *planted, const char *class_name, size_t top) {
    ask(planted, instances, find_instances(planted, class_name), top);
}

static void append(char *text, size_t room, const char *more, size_t length) {
    snprintf(text + strlen(text), room - strlen(text), "%.*s", (int)length, more);
}

/* Such as "3 retain 500: vm → Class → HANDLERS Array ×2". */
static void expect_alike(const struct planted *planted, size_t index, const char *expected) {
    const struct memscope_heap_graph *graph = &planted->graph;
    char text[2000];

    snprintf(text, sizeof text, "%u retain %lu:", alike[index].count, (unsigned long)alike[index].retained);
    for (uint32_t at = 0; at < alike[index].step_count; at++) {
        const struct memscope_path_step *step = &alike[index].steps[at];
        struct memscope_text name = memscope_text_of(graph->categories[0]), edge;

        if (at > 0)
            append(text, sizeof text, " →", SIZE_MAX >> 40);
        if (MEMSCOPE_EDGE_KIND(step->edge) != MEMSCOPE_EDGE_INTERNAL) {
            edge = memscope_names_get(&graph->names, MEMSCOPE_EDGE_NUMBER(step->edge));
            append(text, sizeof text, " ", 1);
            append(text, sizeof text, edge.start, edge.length);
        }
        if (step->node < graph->slot_count)
            name = memscope_names_get(&graph->names, graph->node_class[step->node]);
        append(text, sizeof text, " ", 1);
        append(text, sizeof text, name.start, name.length);
        if (step->times > 1)
            snprintf(text + strlen(text), sizeof text - strlen(text), " ×%u", step->times);
    }
    if (strcmp(text, expected) != 0)
        fprintf(stderr, "expected %s\n     got %s\n", expected, text);
    EXPECT(strcmp(text, expected) == 0);
}

/* Handlers of two buses, which different constants hold, and garbage. */
static void test_paths_by_constants(void) {
    struct planted planted;
    uint32_t object = grow("Class", 10), garbage;

    root(object);
    for (int bus = 0; bus < 2; bus++) {
        uint32_t class_of_bus = grow("Class", 10), handlers = grow("Array", 100);

        refer_by(object, class_of_bus, MEMSCOPE_EDGE_CONSTANT, bus == 0 ? "Bus" : "Tram");
        refer_by(class_of_bus, handlers, MEMSCOPE_EDGE_CONSTANT, "HANDLERS");
        for (int index = 0; index < (bus == 0 ? 1000 : 10); index++) {
            uint32_t handler = grow("Proc", 80);

            refer_by(handlers, handler, MEMSCOPE_EDGE_INDEX, "index");
            grow_on(grow_on(handler, "env", 20), "Session", bus == 0 ? 400 : 1000);
        }
    }
    garbage = grow("Session", 3);
    harvest(&planted);

    ask_class(&planted, "Session", 8);
    EXPECT(found.alike_count == 2 && found.all_alike == 2 && found.targets == 1010 && found.not_reached == 1);
    EXPECT(found.retained == 410000);
    expect_alike(&planted, 0,
                 "1000 retain 400000: vm → Class → Bus Class → HANDLERS Array → index Proc → env → Session");
    expect_alike(&planted, 1, "10 retain 10000: vm → Class → Tram Class → HANDLERS Array → index Proc → env → Session");
    ask_class(&planted, "Session", 1);
    EXPECT(found.alike_count == 1 && found.all_alike == 2 && alike[0].count == 1000);
    ask_class(&planted, "Array", 8);
    expect_alike(&planted, 0, "1 retain 500100: vm → Class → Bus Class → HANDLERS Array");
    ask_class(&planted, "Class", 8);
    EXPECT(found.targets == 3 && found.retained == planted.dominators.retained[object]);

    /* Garbage has no path. */
    ask(&planted, (const uint32_t[]){1012, 3, garbage, UINT32_MAX}, 4, 8);
    EXPECT(planted.graph.node_count > 3012 && found.targets == 2 && found.not_reached == 1);
    ask(&planted, (const uint32_t[]){garbage}, 1, 8);
    EXPECT(found.alike_count == 0 && found.targets == 0 && found.not_reached == 1 && found.retained == 0);
    ask_class(&planted, "NoSuchClass", 8);
    EXPECT(found.alike_count == 0 && found.targets == 0 && found.not_reached == 0);
    uproot(&planted);
}

/* Few nodes of a class or many: paths are ranked by what their ends retain in both cases. */
static void test_nodes_are_ranked(void) {
    struct planted planted;
    uint32_t nodes[201], count = 0, service = grow("Service", 10), small = grow_on(service, "Small", 10),
                         large = grow_on(service, "Large", 10), in_it;

    root(service);
    for (int index = 0; index < 200; index++)
        nodes[count++] = grow_on(index < 20 ? small : large, "String", 100);
    in_it = grow_on(nodes[150], "String", 5);
    nodes[count++] = in_it;
    nodes[count - 1] = nodes[0];
    nodes[0] = in_it;
    harvest(&planted);
    for (uint32_t asked_for = 30; asked_for <= 201; asked_for += 171) {
        struct memscope_path_question question = {.graph = &planted.graph,
                                                  .paths = &planted.paths,
                                                  .dominators = &planted.dominators,
                                                  .nodes = nodes,
                                                  .node_count = asked_for};

        EXPECT(memscope_path_groups_find(&question, alike, 8, &found) == MEMSCOPE_OK);
        EXPECT(found.targets == asked_for && found.retained == (asked_for == 30 ? 2905 : 20005));
        expect_alike(&planted, 0,
                     asked_for == 30 ? "19 retain 1900: vm → Service → Small → String"
                                     : "181 retain 18005: vm → Service → Large → String");
        expect_alike(&planted, 1,
                     asked_for == 30 ? "11 retain 1005: vm → Service → Large → String"
                                     : "20 retain 2000: vm → Service → Small → String");
        EXPECT(memscope_path_groups_find(&question, alike, 1, &found) == MEMSCOPE_OK);
        EXPECT(found.all_alike == 2 && alike[0].retained == (asked_for == 30 ? 1900 : 18005));
    }
    ask_class(&planted, "String", 8);
    EXPECT(found.targets == 201 && found.retained == 20005);
    uproot(&planted);
}

/* A tree's nodes hold each other: what several of them retain counts once for alike paths, and once in the total. */
static void test_targets_in_targets(void) {
    struct planted planted;

    plant(&planted, 6, "0 Class 1 1\n1 Tree 10 2\n2 Hash 100 3 4\n3 Tree 1000\n4 Tree 2000 5\n5 Tree 5\nvm 0");
    ask_class(&planted, "Tree", 8);
    EXPECT(found.targets == 4 && found.retained == 3115 && found.all_alike == 2);
    expect_alike(&planted, 0, "1 retain 3115: vm → Class → Tree");
    expect_alike(&planted, 1, "3 retain 3005: vm → Class → Tree → Hash → Tree");
    ask(&planted, (const uint32_t[]){5, 1, 1}, 3, 8);
    EXPECT(found.targets == 2 && found.retained == 3115);
    expect_alike(&planted, 1, "1 retain 5: vm → Class → Tree → Hash → Tree ×2");
    ask(&planted, (const uint32_t[]){5, 3, 4}, 3, 8);
    EXPECT(found.targets == 3 && found.all_alike == 1 && found.retained == 3005);
    expect_alike(&planted, 0, "3 retain 3005: vm → Class → Tree → Hash → Tree");
    uproot(&planted);
}

/* Paths through the same classes, but by different variables, are not alike. */
static void test_paths_by_variables(void) {
    struct planted planted;
    uint32_t service = grow("Service", 10);

    root(service);
    for (int index = 0; index < 6; index++) {
        uint32_t array = grow("Array", 10);

        refer_by(service, array, MEMSCOPE_EDGE_IVAR, index == 5 ? "@five" : index % 2 ? "@odd" : "@even");
        grow_on(array, "String", 100);
    }
    harvest(&planted);
    ask_class(&planted, "String", 8);
    EXPECT(found.all_alike == 3);
    expect_alike(&planted, 0, "3 retain 300: vm → Service → @even Array → String");
    expect_alike(&planted, 1, "2 retain 200: vm → Service → @odd Array → String");
    expect_alike(&planted, 2, "1 retain 100: vm → Service → @five Array → String");
    uproot(&planted);
}

/* The paths to all nodes of a list are alike, and so are the paths to what the nodes hold. */
static void test_a_list_of_any_length(void) {
    struct planted planted;
    uint32_t lists = grow("Class", 10), node = lists, last = 0;

    root(lists);
    for (int index = 0; index < 30000; index++) {
        uint32_t next = grow("Node", 40);

        refer_by(node, next, MEMSCOPE_EDGE_IVAR, index == 0 ? "@head" : index % 2 ? "@next" : "@other");
        /* After the reference to the next node, so that a depth-first search finds the last node's String first. */
        if (index > 0)
            grow_on(node, "String", 100);
        last = node = next;
    }
    grow_on(last, "String", 100);
    harvest(&planted);
    ask_class(&planted, "Node", 8);
    EXPECT(found.all_alike == 1);
    expect_alike(&planted, 0, "30000 retain 4200000: vm → Class → @head Node");
    ask_class(&planted, "String", 8);
    EXPECT(found.all_alike == 1);
    expect_alike(&planted, 0, "30000 retain 3000000: vm → Class → @head Node → String");
    ask(&planted, &last, 1, 8);
    expect_alike(&planted, 0, "1 retain 140: vm → Class → @head Node ×30000");
    EXPECT(alike[0].steps[2].last == last && alike[0].steps[2].node == 1);
    uproot(&planted);
}

/* Node → Array → Hash → Node → …; the path to the end has too many steps to show them all. */
static void test_a_list_with_something_between(void) {
    struct planted planted;
    uint32_t lists = grow("Class", 10), at = lists;
    static const char *const round[] = {"Node", "Array", "Hash"};

    root(lists);
    for (int index = 0; index < 3000; index++)
        at = grow_on(at, round[index % 3], 40);
    grow_on(at, "String", 7);
    harvest(&planted);
    ask_class(&planted, "Hash", 8);
    EXPECT(found.all_alike == 1);
    expect_alike(&planted, 0, "1000 retain 119927: vm → Class → Node → Array → Hash");
    ask_class(&planted, "String", 8);
    EXPECT(found.all_alike == 1 && alike[0].step_count == MEMSCOPE_PATH_STEPS);
    EXPECT(alike[0].steps_left_out == 3003 - MEMSCOPE_PATH_STEPS);
    EXPECT(alike[0].steps[MEMSCOPE_PATH_STEPS - 1].node == 3001 &&
           alike[0].steps[MEMSCOPE_PATH_STEPS - 2].node == 3000);
    EXPECT(alike[0].steps[1].node == 0 && alike[0].steps[31].node == 30 && alike[0].steps[32].node == 2970);
    uproot(&planted);
}

static unsigned asked[PLANTED_OBJECT + 10];

static memscope_edge_name answer(void *context, uint32_t from, uint32_t to) {
    const struct memscope_heap_graph *graph = context;
    const char *name = to % 2 ? "@odd" : "@even";

    asked[graph->type[from]]++;
    if (from >= graph->slot_count)
        return MEMSCOPE_EDGE_INTERNAL;
    return MEMSCOPE_EDGE_NAME(from == 0 ? MEMSCOPE_EDGE_IVAR : MEMSCOPE_EDGE_INDEX,
                              memscope_names_find(&graph->names, name, strlen(name)));
}

/* Of a large array's edges, the namer is asked only for the names of those shown. */
static void test_names_are_asked_for(void) {
    struct planted planted;
    struct memscope_path_question question = {.namer = answer};

    root(grow("Class", 1));
    for (int half = 0; half < 2; half++) {
        uint32_t array = grow_on(0, "Array", 1);

        for (int index = 0; index < 1000; index++)
            grow_on(array, "String", 10);
    }
    refer_by(0, 0, MEMSCOPE_EDGE_IVAR, "@odd");
    refer_by(0, 0, MEMSCOPE_EDGE_IVAR, "@even");
    harvest(&planted);
    question.graph = &planted.graph;
    question.paths = &planted.paths;
    question.dominators = &planted.dominators;
    question.nodes = instances;
    question.node_count = find_instances(&planted, "String");
    question.context = &planted.graph;
    EXPECT(memscope_path_groups_find(&question, alike, 8, &found) == MEMSCOPE_OK);
    EXPECT(found.all_alike == 2 && asked[PLANTED_ARRAY] == 2);
    expect_alike(&planted, 0, "1000 retain 10000: vm → Class → @odd Array → @even String");
    expect_alike(&planted, 1, "1000 retain 10000: vm → Class → @even Array → @odd String");
    uproot(&planted);
}

int main(void) {
    test_paths_by_constants();
    test_nodes_are_ranked();
    test_targets_in_targets();
    test_paths_by_variables();
    test_a_list_of_any_length();
    test_a_list_with_something_between();
    test_names_are_asked_for();
    return 0;
}
