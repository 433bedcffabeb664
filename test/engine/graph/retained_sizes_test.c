#include "graph/retained_sizes.h"
#include "planted.h"

static void expect_row(const struct planted *planted, const struct memscope_class_row *row, const char *name,
                       uint32_t count, uint64_t bytes, uint64_t retained) {
    EXPECT(row->name == planted_class(planted, name));
    EXPECT(row->count == count && row->bytes == bytes && row->retained_bytes == retained);
    EXPECT(row->slot_bytes == MEMSCOPE_UNKNOWN);
}

/* A tree retains itself once, not once for each of its nodes; what is shared belongs to neither class. */
static void test_by_class(void) {
    struct planted planted;
    struct memscope_class_row rows[10];
    size_t count;

    plant(&planted, 9,
          "0 Tree 1 1 2\n1 Tree 10 3\n2 Leaf 100 4\n3 Tree 1000 5\n4 Tree 5 5\n5 String 7\n6 Tree 3\n7 Hash 9 8\n"
          "8 Leaf 2 7\nvm 0");
    EXPECT(memscope_largest_classes(&planted.graph, &planted.paths, &planted.dominators, rows, 10, &count) ==
           MEMSCOPE_OK);
    EXPECT(count == 3);
    expect_row(&planted, &rows[0], "Tree", 4, 1016, 1123);
    expect_row(&planted, &rows[1], "Leaf", 1, 100, 105);
    expect_row(&planted, &rows[2], "String", 1, 7, 7);
    EXPECT(memscope_largest_classes(&planted.graph, &planted.paths, &planted.dominators, rows, 1, &count) ==
           MEMSCOPE_OK);
    EXPECT(count == 1);
    expect_row(&planted, &rows[0], "Tree", 4, 1016, 1123);

    EXPECT(memscope_largest_classes(&planted.graph, &planted.paths, NULL, rows, 10, &count) == MEMSCOPE_OK);
    EXPECT(count == 3);
    expect_row(&planted, &rows[0], "Hash", 1, 9, 9);
    expect_row(&planted, &rows[1], "Tree", 1, 3, 3);
    expect_row(&planted, &rows[2], "Leaf", 1, 2, 2);
    uproot(&planted);
}

static void expect_holder(const struct memscope_retainer *holder, uint32_t node, uint32_t objects, uint64_t retained) {
    EXPECT(holder->node == node && holder->object_count == objects && holder->retained == retained);
}

static void test_largest(void) {
    struct planted planted;
    struct memscope_retainer holders[10];
    size_t count;

    plant(&planted, 7,
          "0 Bus 10 1\n1 Array 20 2 3 4\n2 String 300\n3 Hash 40 5\n4 String 50\n5 String 60\n6 Array 200\nvm 0 6");
    EXPECT(memscope_largest_retainers(&planted.graph, &planted.dominators, holders, 10, &count) == MEMSCOPE_OK);
    EXPECT(count == 7);
    expect_holder(&holders[0], 0, 6, 480);
    expect_holder(&holders[1], 1, 5, 470);
    expect_holder(&holders[2], 2, 1, 300);
    expect_holder(&holders[3], 6, 1, 200);
    expect_holder(&holders[4], 3, 2, 100);
    expect_holder(&holders[5], 5, 1, 60);
    EXPECT(memscope_largest_retainers(&planted.graph, &planted.dominators, holders, 3, &count) == MEMSCOPE_OK);
    EXPECT(count == 3 && holders[2].node == 2);
    EXPECT(memscope_largest_retainers(&planted.graph, &planted.dominators, holders, 0, &count) == MEMSCOPE_OK);
    EXPECT(count == 0);
    uproot(&planted);
}

/*
 * Of the nodes of a list, each of which retains nearly as much as the one before, only the head is a holder. A class in
 * a class is no list.
 */
static void test_a_list_is_one(void) {
    struct planted planted;
    struct memscope_retainer holders[3];
    size_t count;

    plant_list(&planted, 200000);
    EXPECT(memscope_largest_retainers(&planted.graph, &planted.dominators, holders, 3, &count) == MEMSCOPE_OK);
    EXPECT(count == 3 && holders[0].node == 0 && holders[0].retained == 200000 * 40 + 500);
    EXPECT(holders[1].node == 200000 && holders[1].retained == 500 && holders[2].retained < 500);
    uproot(&planted);

    plant(&planted, 3, "0 Class 10 1\n1 Class 20 2\n2 Array 5000\nvm 0");
    EXPECT(memscope_largest_retainers(&planted.graph, &planted.dominators, holders, 3, &count) == MEMSCOPE_OK);
    EXPECT(count == 3 && holders[0].node == 0 && holders[1].node == 1 && holders[2].node == 2);
    uproot(&planted);

    plant(&planted, 6, "0 Node 10 1\n1 Array 20 2\n2 Node 10 3\n3 Array 20 4\n4 Node 10 5\n5 String 5000\nvm 0");
    EXPECT(memscope_largest_retainers(&planted.graph, &planted.dominators, holders, 3, &count) == MEMSCOPE_OK);
    EXPECT(count == 3 && holders[0].node == 0 && holders[1].node == 1 && holders[2].node == 5);
    uproot(&planted);
}

int main(void) {
    test_by_class();
    test_largest();
    test_a_list_is_one();
    return 0;
}
