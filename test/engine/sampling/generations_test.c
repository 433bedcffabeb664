/* Generations are runs of epochs, few of them, and each epoch is in one. Silent when right. */
#include "../expect.h"
#include "sampling/generations.h"

#include <string.h>

static void mark(struct memscope_generations *generations, uint32_t times) {
    while (times-- > 0)
        memscope_generations_marked(generations, true);
}

/* Each epoch belongs to the latest listed generation that does not begin after it. */
static size_t expect_partition(const struct memscope_generations *generations) {
    uint32_t list[MEMSCOPE_GENERATIONS];
    size_t count = memscope_generations_list(generations, list), at = count;

    EXPECT(count > 0 && list[count - 1] == 0);
    for (uint32_t epoch = 0; epoch <= generations->epoch; epoch++) {
        while (at > 1 && list[at - 2] <= epoch)
            at--;
        EXPECT(memscope_generation_of(generations, epoch) == list[at - 1]);
    }
    return count;
}

static void test_an_epoch_is_a_generation_while_there_are_few(void) {
    struct memscope_generations generations = {0};

    EXPECT(expect_partition(&generations) == 1);
    mark(&generations, 63);
    EXPECT(expect_partition(&generations) == 64);
    mark(&generations, 1);
    EXPECT(expect_partition(&generations) == 33);
}

static void test_judged_are_survivors_of_two_collections_one_of_them_major(void) {
    struct memscope_generations generations = {0};

    mark(&generations, 3);
    EXPECT(memscope_generation_unjudged(&generations) == 0);
    memscope_generations_marked(&generations, false);
    EXPECT(memscope_generation_unjudged(&generations) == 3);
    mark(&generations, 1);
    EXPECT(memscope_generation_unjudged(&generations) == 4);
    mark(&generations, 96);
    EXPECT(memscope_generation_unjudged(&generations) == 4);
    EXPECT(memscope_generation_of(&generations, 3) == 2);
    EXPECT(memscope_generation_of(&generations, 4) == 4);
}

static void test_the_last_generations_that_were_begun_stay(void) {
    struct memscope_generations generations = {0};
    uint32_t first, last = 0;

    mark(&generations, 1000);
    first = memscope_generation_begin(&generations);
    EXPECT(first == 1001 && memscope_generation_of(&generations, first) == first);
    for (int begun = 1; begun <= MEMSCOPE_BEGUN_GENERATIONS; begun++) {
        mark(&generations, 7);
        last = memscope_generation_begin(&generations);
    }
    EXPECT(memscope_generation_of(&generations, first) != first);
    EXPECT(memscope_generation_of(&generations, last) == last);
    EXPECT(memscope_generation_of(&generations, last - 1) != last);
    EXPECT(expect_partition(&generations) <= MEMSCOPE_GENERATIONS);
}

static void test_random_histories(void) {
    uint32_t random = 20261126;

    for (int history = 0; history < 200; history++) {
        struct memscope_generations generations = {0};

        for (int step = 0; step < 300; step++) {
            random = random * 1664525 + 1013904223;
            if (random >> 28 == 0)
                memscope_generation_begin(&generations);
            else
                memscope_generations_marked(&generations, random >> 28 > 3);
        }
        EXPECT(expect_partition(&generations) <= MEMSCOPE_GENERATIONS);
    }
}

int main(void) {
    test_an_epoch_is_a_generation_while_there_are_few();
    test_judged_are_survivors_of_two_collections_one_of_them_major();
    test_the_last_generations_that_were_begun_stay();
    test_random_histories();
    return 0;
}
