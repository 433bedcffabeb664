/* Ruby's rule by which a garbage collection returns some of the pages without objects to the kernel. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rule's settings, as Ruby has read them from the environment, constant once learnt. */
struct memscope_page_rule {
    double free_slots_max_ratio; /* the share of all slots that may stay free */
    size_t free_slots_floor;     /* or this many, if more, 0 if unknown (MEMSCOPE_KNOWS_INIT_SLOTS) */
};

/* Called when the extension is loaded, since later changes of ENV have no effect on Ruby. */
void memscope_page_rule_learn(void);
const struct memscope_page_rule *memscope_page_rule(void);

/* The progress of a heap's sweep (the pages of one slot size) since the program last ran. */
struct memscope_sweep_step {
    uint32_t unlinked, pooled, free_slots;
};

/*
 * A sweep of all pages in the order of the listing, which before 3.4 is also the order of the heaps' own lists. The
 * page at which a step of the sweep begins is unknown, and so is the number of pages set aside for the next incremental
 * mark phase. So two sweeps run, one for the minimum of returned pages and one for the maximum.
 */
struct memscope_sweep {
    uint32_t slot_bytes;
    struct memscope_sweep_step fewest, most;
    uint64_t slots, free_slots;
    uint64_t smallest_slots; /* the number of slots in a page of the smallest slots */
};

/* True for a page that is returned, if the number of pages is not limited further. */
struct memscope_page_fate {
    bool surely, maybe;
};

struct memscope_page_fate memscope_sweep_page(struct memscope_sweep *sweep, uint32_t slot_bytes, uint32_t slots,
                                              uint32_t free_slots);

/*
 * Bounds on the pages returned once all are swept. `least` holds if the sweep finds so many. allocatable_slots: the
 * slots of pages that Ruby may yet add.
 */
struct memscope_sweep_limit {
    uint64_t least, most;
};

struct memscope_sweep_limit memscope_sweep_limit(const struct memscope_sweep *sweep, uint64_t allocatable_slots);
