/*
 * One pass over all slots of a listing: how full the pages are, what pins objects, and what objects hold through
 * malloc. Runs in the process, or in a forked child if that stops Ruby for less time.
 */
#ifndef MEMSCOPE_HEAP_WALK_H
#define MEMSCOPE_HEAP_WALK_H

#include "base/status.h"
#include "fork/forked_child.h"
#include "ruby/heap/compaction_bounds.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/held_memory.h"

enum memscope_walk_subjects {
    MEMSCOPE_WALK_PINS = 1,
    MEMSCOPE_WALK_HELD = 2,
};

/* What a walk found. Points only to constants of this library, so a forked child can send it. */
struct memscope_heap_walk {
    struct memscope_slot_sizes sizes;
    const char *pins_refusal; /* why pins are not known; NULL when they are */
    struct memscope_held_memory held;
    uint64_t slots, spent_ns;
    size_t scratch_bytes;
};

/*
 * Walks a MEMSCOPE_SLOTS_UNCOUNTED listing, and sets the live_count of its pages. Caller holds the GVL, or is the only
 * thread of a forked child. Allocates in scratch only. No other Ractor may be alive. While a sweep is in progress, call
 * it only in a child: what an unmarked object (garbage, or made since the mark phase) pins then counts only as
 * MEMSCOPE_PAGE_MAY_PIN, and an unmarked T_DATA is asked neither for its references nor for its size.
 */
void memscope_heap_walk(struct memscope_heap_listing *listing, struct memscope_scratch *scratch, unsigned subjects,
                        struct memscope_heap_walk *walk);

/* Predicts how long a walk of this many slots takes, from the last one for these subjects, in the process or child. */
uint64_t memscope_heap_walk_predicted_ns(uint64_t slots, unsigned subjects);

/* Call it with what a child found: memscope_heap_walk_predicted_ns learns from it. */
void memscope_heap_walk_took(const struct memscope_heap_walk *walk, unsigned subjects);

/* A walk in a forked child. */
struct memscope_walk_child {
    struct memscope_heap_listing *listing;
    unsigned subjects;
    struct memscope_forked_child process;
    struct memscope_heap_walk found; /* the answer */
};

/*
 * Forks a child that walks; only this call needs the GVL. The listing and *child must not move until
 * memscope_walk_child_end. Fails as memscope_forked_child_start does.
 */
enum memscope_status memscope_walk_child_start(struct memscope_walk_child *child);

/* Idempotent. */
void memscope_walk_child_end(struct memscope_walk_child *child);

#endif
