/* Allocations by tag: sums over windows, the last of which grows until the next one begins. */
#include "sampling/tag_allocations.h"

#include "../expect.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static struct memscope_tag_allocations allocations;

static void count(uint32_t tag, uint32_t times) {
    allocations.window[tag] += times;
}

static double sum_of(uint32_t tag, double stands_for, double last, uint64_t expected) {
    uint64_t counted;
    double sum = memscope_tag_allocations_of(&allocations, tag, stands_for, last, &counted);

    EXPECT(counted == expected);
    return sum;
}

static bool near(double value, double expected) {
    return fabs(value - expected) <= 1e-9 * fabs(expected);
}

static void test_a_window_counts_before_the_next_begins(void) {
    memset(&allocations, 0, sizeof allocations);
    count(1, 5000);
    EXPECT(near(sum_of(1, 3, 0.5, 5000), 7500));
    EXPECT(near(sum_of(1, 3, 1, 5000), 15000));
    EXPECT(sum_of(2, 3, 1, 0) == 0);
}

static void test_windows_add_up(void) {
    uint64_t last = MEMSCOPE_TAGS - 1;

    memset(&allocations, 0, sizeof allocations);
    memscope_tag_allocations_next_window(&allocations, 0);
    count(last, 100);
    memscope_tag_allocations_next_window(&allocations, 2);
    count(last, 10);
    memscope_tag_allocations_next_window(&allocations, 7);
    EXPECT(near(sum_of(last, 1, 1, 110), 270));
}

int main(void) {
    test_a_window_counts_before_the_next_begins();
    test_windows_add_up();
    return 0;
}
