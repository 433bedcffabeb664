/* Ruby's rule by which a garbage collection returns some of the pages without objects to the kernel. */
#ifndef MEMSCOPE_PAGE_RULE_H
#define MEMSCOPE_PAGE_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rule's settings, as Ruby has read them from the environment; constant once learnt. */
struct memscope_page_rule {
    double free_slots_max_ratio; /* the share of all slots that may stay free */
    size_t free_slots_floor;     /* or this many, if that is more; 0: not known (MEMSCOPE_KNOWS_INIT_SLOTS) */
};

/* Called when the extension is loaded: what the program sets in ENV later has no effect on Ruby. */
void memscope_page_rule_learn(void);
const struct memscope_page_rule *memscope_page_rule(void);

/* How far the sweep of a heap (the pages of one slot size) has come since it last let the program go on. */
struct memscope_sweep_step {
    uint32_t unlinked, pooled, free_slots;
};

/*
 * A sweep of all pages in the order of the listing, which before 3.4 is also the order of the heaps' own lists. It is
 * not known at which page a step of the sweep begins, nor how many pages are set aside for the next incremental
 * marking. So two sweeps run: one that returns the fewest pages and one that returns the most.
 */
struct memscope_sweep {
    uint32_t slot_bytes;
    struct memscope_sweep_step fewest, most;
    uint64_t slots, free_slots;
    uint64_t smallest_slots; /* the number of slots in a page of the smallest slots */
};

/* Whether a page is returned, if the number of pages is not limited further. */
struct memscope_page_fate {
    bool surely, maybe;
};

struct memscope_page_fate memscope_sweep_page(struct memscope_sweep *sweep, uint32_t slot_bytes, uint32_t slots,
                                              uint32_t free_slots);

/*
 * How many pages are returned once all are swept: at most `most`, and at least `least` if the sweep finds so many.
 * allocatable_slots: the slots of pages that Ruby may yet add.
 */
struct memscope_sweep_limit {
    uint64_t least, most;
};

struct memscope_sweep_limit memscope_sweep_limit(const struct memscope_sweep *sweep, uint64_t allocatable_slots);

#endif
