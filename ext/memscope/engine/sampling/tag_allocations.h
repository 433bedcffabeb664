/*
 * The number of objects that each tag has allocated: an estimate from the windows in which a profile watches all
 * allocations (sampling_plan.h). Each allocation of a window is counted under the tag of its thread. Any context, one
 * thread at a time. A lost count does no harm.
 */
#pragma once

#include <stdint.h>

/* Tags are numbers below this one: 0 for none, one for each name, and the last for names that found no room. */
#define MEMSCOPE_TAGS 4098

struct memscope_tag_allocations {
    uint32_t window[MEMSCOPE_TAGS]; /* allocations of the last window, by tag */
    uint64_t before[MEMSCOPE_TAGS]; /* allocations of the earlier windows */
    double sums[MEMSCOPE_TAGS];     /* allocations that the earlier windows represent */
};

/* Begins a window. `stands_for` is the weight of an allocation in the window before it (memscope_plan_begin_window). */
void memscope_tag_allocations_next_window(struct memscope_tag_allocations *allocations, double stands_for);

/*
 * The estimated number of objects that one tag has allocated, over all windows. *counted is the number of those that
 * were counted. `stands_for` is the weight of an allocation in the last window, and `last` is that of memscope_plan_at.
 */
double memscope_tag_allocations_of(const struct memscope_tag_allocations *allocations, uint32_t tag, double stands_for,
                                   double last, uint64_t *counted);
