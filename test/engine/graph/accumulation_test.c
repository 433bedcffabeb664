#include "graph/accumulation.h"
#include "planted.h"

/* A small program: classes that hold classes, a configuration, and what each class keeps. */
static uint32_t grow_program(void) {
    uint32_t object = grow("Class", 600), settings;

    root(object);
    settings = grow_on(object, "Hash", 200);
    for (int index = 0; index < 20; index++)
        grow_on(grow_on(settings, "Hash", 200), "String", 100);
    for (int index = 0; index < 500; index++) {
        uint32_t class_in_it = grow_on(object, "Class", 800);

        for (int method = 0; method < 8; method++)
            grow_on(class_in_it, "env", 300);
    }
    return object;
}

/* The first suspect is this object, and it has accumulated at least this much. */
static void expect_suspect(const char *leak, uint32_t node, uint64_t at_least) {
    struct planted planted;
    struct memscope_accumulation suspects[5];
    size_t count;

    harvest(&planted);
    EXPECT(memscope_accumulations_find(&planted.graph, &planted.paths, &planted.dominators, suspects, 5, &count) ==
           MEMSCOPE_OK);
    EXPECT(count == 5);
    if (suspects[0].node != node)
        fprintf(stderr, "%s: expected %u, got %u (%lu)\n", leak, node, suspects[0].node,
                (unsigned long)suspects[0].accumulated);
    EXPECT(suspects[0].node == node && suspects[0].accumulated >= at_least);
    EXPECT(suspects[0].retained == planted.dominators.retained[node]);
    EXPECT(suspects[0].accumulated >= suspects[1].accumulated && suspects[3].accumulated >= suspects[4].accumulated);
    uproot(&planted);
}

/* Subscribers are blocks, which hold their environment, which holds a session. */
static void test_many_parts(void) {
    uint32_t bus = grow_on(grow_program(), "Class", 800), handlers = grow_on(bus, "Array", 8000);

    for (int index = 0; index < 1000; index++)
        grow_on(grow_on(grow_on(handlers, "Proc", 80), "env", 80), "Session", 500);
    expect_suspect("subscribers", handlers, 1000 * 660 + 8000);
}

/* Blocks of at_exit: no object holds them all. What the stack holds comes and goes. */
static void test_a_list_of_roots(const char *category, bool is_list) {
    struct planted planted;
    struct memscope_accumulation suspects[5];
    size_t count;

    grow_program();
    for (int index = 0; index < 1000; index++) {
        uint32_t block = grow("Proc", 80);

        root_of(category, block);
        grow_on(grow_on(block, "env", 80), "Session", 500);
    }
    harvest(&planted);
    EXPECT(memscope_accumulations_find(&planted.graph, &planted.paths, &planted.dominators, suspects, 5, &count) ==
           MEMSCOPE_OK);
    EXPECT(strcmp(planted.graph.categories[1], category) == 0);
    EXPECT((suspects[0].node == memscope_graph_category_node(&planted.graph, 1)) == is_list);
    EXPECT(!is_list || (suspects[0].accumulated == 660000 && suspects[0].retained == 660000));
    uproot(&planted);
}

/* Memory accumulates in the collection, not in the chain of objects holding it. */
static void test_a_chain_before_it(void) {
    uint32_t at = grow_program(), cache;

    for (int index = 0; index < 7; index++)
        at = grow_on(at, index % 2 ? "Hash" : "Service", 100);
    cache = grow_on(at, "Hash", 5000);
    for (int index = 0; index < 500; index++)
        grow_on(cache, "String", 1000);
    expect_suspect("chain", cache, 505000);
}

static void test_one_large_object(void) {
    uint32_t buffer = grow_on(grow_on(grow_on(grow_program(), "Class", 800), "Log", 40), "String", 50000000);

    expect_suspect("buffer", buffer, 50000000);
}

static void test_few_large_parts_are_suspects_themselves(void) {
    uint32_t outer = grow_on(grow_program(), "Hash", 500), large = 0;

    for (int shard = 0; shard < 4; shard++) {
        uint32_t cache = grow_on(outer, "Hash", 500);

        for (int index = 0; index < 1000 + shard; index++)
            grow_on(cache, "String", 1000);
        large = cache;
    }
    expect_suspect("shards", large, 1003500);
}

static void test_a_list(void) {
    uint32_t head = grow_on(grow_on(grow_program(), "Class", 800), "Node", 40), node = head;

    for (int index = 0; index < 5000; index++) {
        grow_on(node, "String", 100);
        node = grow_on(node, "Node", 40);
    }
    expect_suspect("list", head, 4900 * 140);

    head = grow_on(grow_on(grow_program(), "Class", 800), "Node", 40);
    node = head;
    for (int index = 0; index < 5000; index++) {
        grow_on(node, "String", 100);
        node = grow_on(grow_on(node, "Array", 0), "Node", 40);
    }
    expect_suspect("list in arrays", head, 4900 * 140);
}

/*
 * Two indexes of the same records, in different classes: neither retains them. They count as parts of the index on the
 * shortest path to them.
 */
static void test_shared_parts(void) {
    uint32_t object = grow_program(), one = grow_on(grow_on(object, "Class", 800), "Hash", 9000),
             other = grow_on(grow_on(grow_on(object, "Class", 800), "Service", 100), "Hash", 9000);

    for (int index = 0; index < 1000; index++)
        refer(other, grow_on(one, "Record", 700));
    expect_suspect("indexes", one, 709000);
}

/* Only code: the first suspect is the class with most methods, not the class that holds all classes. */
static void test_classes_in_classes_are_code(void) {
    struct planted planted;
    struct memscope_accumulation suspects[3];
    uint32_t object = grow_program(), large = grow_on(object, "Class", 800);
    size_t count;

    for (int index = 0; index < 100; index++)
        grow_on(large, "env", 300);
    harvest(&planted);
    EXPECT(memscope_accumulations_find(&planted.graph, &planted.paths, &planted.dominators, suspects, 3, &count) ==
           MEMSCOPE_OK);
    EXPECT(count == 3 && suspects[0].node == large && suspects[0].accumulated == 30800);
    EXPECT(planted.dominators.retained[object] > 1000000);
    EXPECT(memscope_accumulations_find(&planted.graph, &planted.paths, &planted.dominators, suspects, 0, &count) ==
           MEMSCOPE_OK);
    EXPECT(count == 0);
    uproot(&planted);
}

/* Classes made at run time and kept in a collection are an accumulation like any other. */
static void test_a_leak_of_classes(void) {
    uint32_t kept = grow_on(grow_on(grow_program(), "Class", 800), "Array", 8000);

    for (int index = 0; index < 1000; index++)
        grow_on(kept, "Class", 800);
    expect_suspect("classes", kept, 808000);
}

int main(void) {
    test_many_parts();
    test_a_list_of_roots("end_proc", true);
    test_a_list_of_roots("finalizers", true);
    test_a_list_of_roots("machine_context", false);
    test_a_chain_before_it();
    test_one_large_object();
    test_few_large_parts_are_suspects_themselves();
    test_a_list();
    test_shared_parts();
    test_classes_in_classes_are_code();
    test_a_leak_of_classes();
    return 0;
}
