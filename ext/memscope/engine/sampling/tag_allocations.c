#include "sampling/tag_allocations.h"

void memscope_tag_allocations_next_window(struct memscope_tag_allocations *allocations, double stands_for) {
    for (uint32_t tag = 0; tag < MEMSCOPE_TAGS; tag++) {
        if (allocations->window[tag] == 0)
            continue; /* the pages of tags without allocations stay untouched */
        allocations->sums[tag] += allocations->window[tag] * stands_for;
        allocations->before[tag] += allocations->window[tag];
        allocations->window[tag] = 0;
    }
}

double memscope_tag_allocations_of(const struct memscope_tag_allocations *allocations, uint32_t tag, double stands_for,
                                   double last, uint64_t *counted) {
    *counted = allocations->before[tag] + allocations->window[tag];
    return allocations->sums[tag] + allocations->window[tag] * stands_for * last;
}
