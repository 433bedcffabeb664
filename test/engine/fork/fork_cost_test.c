/* The predicted cost of a fork follows the last fork and the resident bytes. Silent when right. */
#include "../expect.h"
#include "fork/fork_cost.h"
#include "kernel/process.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

static void test_whether_a_fork_pays(void) {
    EXPECT(memscope_fork_pays(30, 20, 10));
    EXPECT(!memscope_fork_pays(20, 20, 10));
    EXPECT(!memscope_fork_pays(30, 20, 30));
    EXPECT(memscope_fork_pays(30, 0, 1000));
}

static void test_prediction(void) {
    uint64_t before = memscope_fork_predicted_ns(), first;
    char *volatile block = malloc(64 * MIB); /* volatile: gcc 16 drops a memset that nothing reads before free */

    EXPECT(block != NULL);
    memset(block, 1, 64 * MIB);
    first = memscope_fork_predicted_ns();
    EXPECT(first >= before + 64 * 12500 / 2);
    memscope_fork_took(1000000000);
    EXPECT(memscope_fork_predicted_ns() > 500000000 && memscope_fork_predicted_ns() < 1500000000);
    free(block);
}

static void test_room(void) {
    struct memscope_fork_room least, most;

    memscope_fork_room_read(0, &least);
    memscope_fork_room_read(UINT64_MAX, &most);
    EXPECT(least.needed_bytes < MIB);
    EXPECT(most.needed_bytes > least.needed_bytes);
    EXPECT(least.free_bytes > 0);
}

static void test_slot_rate(void) {
    memscope_slot_rate rate = 2000;

    EXPECT(memscope_slot_rate_predict(&rate, 1000000) == 2000000);
    memscope_slot_rate_learn(&rate, 1000000, 5000000);
    EXPECT(memscope_slot_rate_predict(&rate, 3000) == 15000);
    memscope_slot_rate_learn(&rate, 99999, 1000000);
    memscope_slot_rate_learn(&rate, 1000000, 0);
    EXPECT(memscope_slot_rate_predict(&rate, 3000) == 15000);
}

int main(void) {
    test_whether_a_fork_pays();
    test_slot_rate();
    test_prediction();
    test_room();
    return 0;
}
