#include "sampling/tag_allocations.h"

#include <string.h>

static void add(struct memscope_window_sums *sums, uint32_t counted, double stands_for, double watched) {
    memscope_window_sums_add(sums, counted * stands_for, MEMSCOPE_WINDOW_ALLOCATIONS * stands_for * watched);
}

void memscope_tag_allocations_next_window(struct memscope_tag_allocations *allocations, double stands_for) {
    for (uint32_t tag = 0; tag < MEMSCOPE_TAGS; tag++) {
        if (allocations->window[tag] == 0)
            continue;
        add(&allocations->sums[tag], allocations->window[tag], stands_for, 1);
        allocations->before[tag] += allocations->window[tag];
        allocations->window[tag] = 0;
    }
}

struct memscope_window_sums memscope_tag_allocations_of(const struct memscope_tag_allocations *allocations,
                                                        uint32_t tag, double stands_for, double last, double watched,
                                                        uint64_t *counted) {
    struct memscope_window_sums sums = allocations->sums[tag];

    add(&sums, allocations->window[tag], stands_for * last, watched);
    *counted = allocations->before[tag] + allocations->window[tag];
    return sums;
}
