/*
 * One pass over all slots of a listing counts live slots, and finds pinned objects and objects' malloc memory. Runs in
 * the process, or in a forked child if that stops Ruby for less time.
 */
#pragma once

#include "ruby/heap/compaction_bounds.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/held_memory.h"

enum memscope_walk_subjects {
    MEMSCOPE_WALK_PINS = 1,
    MEMSCOPE_WALK_HELD = 2,
};

/* Points only to constants of this library, so a forked child can send it. */
struct memscope_heap_walk {
    struct memscope_slot_sizes sizes;
    const char *pins_refusal; /* the reason why pins are unknown, NULL if they are known */
    struct memscope_held_memory held;
    uint64_t spent_ns; /* CPU time */
    size_t scratch_bytes;
};

/*
 * Walks a MEMSCOPE_SLOTS_UNCOUNTED listing, and sets the live_count of its pages. Caller holds the GVL, or is the only
 * thread of a forked child. Allocates in scratch only. No other Ractor may be alive. While a sweep is in progress, call
 * it only in a child: an unmarked object (garbage, or made since the mark phase) then sets only MEMSCOPE_PAGE_MAY_PIN,
 * and the mark and size functions of an unmarked T_DATA are not called.
 */
void memscope_heap_walk(struct memscope_heap_listing *listing, struct memscope_scratch *scratch, unsigned subjects,
                        struct memscope_heap_walk *walk);
