/* Allocations by tag: sums over windows, the last of which grows until the next one begins. */
#include "sampling/tag_allocations.h"

#include "../expect.h"

#include <math.h>
#include <string.h>

static struct memscope_tag_allocations allocations;

static void count(uint32_t tag, uint32_t times) {
    allocations.window[tag] += times;
}

static struct memscope_window_sums sums_of(uint32_t tag, double stands_for, double last, double watched,
                                           uint64_t expected) {
    uint64_t counted;
    struct memscope_window_sums sums =
        memscope_tag_allocations_of(&allocations, tag, stands_for, last, watched, &counted);

    EXPECT(counted == expected);
    return sums;
}

static bool near(double value, double expected) {
    return fabs(value - expected) <= 1e-9 * fabs(expected);
}

static void test_a_window_counts_before_the_next_begins(void) {
    struct memscope_window_sums sums;

    memset(&allocations, 0, sizeof allocations);
    count(1, 5000);
    sums = sums_of(1, 3, 0.5, 1, 5000);
    EXPECT(near(sums.sum, 7500) && near(sums.squares, 7500.0 * 7500));
    EXPECT(near(sums.products, 7500.0 * MEMSCOPE_WINDOW_ALLOCATIONS * 1.5));
    sums = sums_of(1, 3, 1, 0.25, 5000); /* an open window stands for the part of it that was watched */
    EXPECT(near(sums.products, 15000.0 * MEMSCOPE_WINDOW_ALLOCATIONS * 0.75));
    EXPECT(sums_of(2, 3, 1, 1, 0).sum == 0);
}

static void test_windows_add_up(void) {
    struct memscope_window_sums sums;
    uint64_t last = MEMSCOPE_TAGS - 1;

    memset(&allocations, 0, sizeof allocations);
    memscope_tag_allocations_next_window(&allocations, 0);
    count(last, 100);
    memscope_tag_allocations_next_window(&allocations, 2);
    count(last, 10);
    memscope_tag_allocations_next_window(&allocations, 7);
    sums = sums_of(last, 1, 1, 1, 110);
    EXPECT(near(sums.sum, 270) && near(sums.squares, 200 * 200 + 70 * 70));
    EXPECT(near(sums.products, MEMSCOPE_WINDOW_ALLOCATIONS * (200.0 * 2 + 70 * 7)));
}

int main(void) {
    test_a_window_counts_before_the_next_begins();
    test_windows_add_up();
    return 0;
}
