#include "../expect.h"
#include "graph/top_rows.h"

static void expect_largest(const uint64_t *weights, uint32_t count, size_t room, const uint32_t *expected,
                           size_t expected_count) {
    struct memscope_top_rows largest;

    EXPECT(memscope_top_rows_open(&largest, room) == MEMSCOPE_OK);
    for (uint32_t number = 0; number < count; number++)
        memscope_top_rows_offer(&largest, weights[number], number);
    memscope_top_rows_sort(&largest);
    EXPECT(largest.count == expected_count);
    for (size_t index = 0; index < expected_count; index++)
        EXPECT(largest.items[index].number == expected[index] &&
               largest.items[index].weight == weights[expected[index]]);
    memscope_top_rows_close(&largest);
    memscope_top_rows_close(&largest);
}

static void test_keeps_the_largest(void) {
    const uint64_t weights[] = {5, 0, 7, 7, 1, 9, 7, UINT64_MAX, 2};

    expect_largest(weights, 9, 0, NULL, 0);
    expect_largest(weights, 0, 3, NULL, 0);
    expect_largest(weights, 9, 1, (const uint32_t[]){7}, 1);
    expect_largest(weights, 9, 4, (const uint32_t[]){7, 5, 2, 3}, 4);
    expect_largest(weights, 9, 100, (const uint32_t[]){7, 5, 2, 3, 6, 0, 8, 4}, 8);
}

static void test_of_many(void) {
    struct memscope_top_rows largest;

    EXPECT(memscope_top_rows_open(&largest, 1000) == MEMSCOPE_OK);
    for (uint32_t number = 0; number < 100003; number++)
        memscope_top_rows_offer(&largest, 1 + (uint64_t)number * 7919 % 100003, number);
    memscope_top_rows_sort(&largest);
    for (uint32_t index = 0; index < 1000; index++)
        EXPECT(largest.items[index].weight == 100003 - index);
    memscope_top_rows_close(&largest);
}

int main(void) {
    test_keeps_the_largest();
    test_of_many();
    return 0;
}
