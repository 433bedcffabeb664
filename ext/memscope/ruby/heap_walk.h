/*
 * One pass over all slots of a listing: how full the pages are, what pins objects, and what objects hold through
 * malloc. In the process, or in a forked child where that stops Ruby for less time.
 */
#ifndef MEMSCOPE_HEAP_WALK_H
#define MEMSCOPE_HEAP_WALK_H

#include "base/status.h"
#include "fork/forked_child.h"
#include "ruby/compaction_bounds.h"
#include "ruby/held_memory.h"
#include "ruby/ruby_heap.h"

enum memscope_walk_subjects {
    MEMSCOPE_WALK_PINS = 1,
    MEMSCOPE_WALK_HELD = 2,
};

/* What a walk found. Holds no pointer but to constants of this library, so a forked child can send it. */
struct memscope_heap_walk {
    struct memscope_slot_sizes sizes;
    const char *pins_refusal; /* why pins are not known; NULL when they are */
    struct memscope_held_memory held;
    uint64_t slots, spent_ns;
    size_t scratch_bytes;
};

/*
 * Walks a listing that was not counted; counts its live slots into it. Caller holds the GVL, or is the only thread of a
 * forked child. Allocates in scratch only. As for pins and held memory: no sweep may be in progress and no other Ractor
 * alive.
 */
void memscope_heap_walk(struct memscope_heap_listing *listing, struct memscope_scratch *scratch, unsigned subjects,
                        struct memscope_heap_walk *walk);

/* What a walk of so many slots will take in the process: by the last one for these subjects, wherever that was. */
uint64_t memscope_heap_walk_predicted_ns(uint64_t slots, unsigned subjects);

/* A walk in a forked child. */
struct memscope_walk_child {
    struct memscope_heap_listing *listing;
    unsigned subjects;
    struct memscope_forked_child process;
    struct memscope_heap_walk found;
    size_t received;
};

/*
 * Starts the walk; the GVL is held, and only for that. Both the listing and child stay where they are until the end.
 * What fails and how is memscope_forked_child_start's.
 */
enum memscope_status memscope_walk_child_start(struct memscope_walk_child *child);

/* Waits for the answer, without the GVL; as memscope_forked_child_receive. */
enum memscope_forked_progress memscope_walk_child_receive(struct memscope_walk_child *child);

/* Idempotent. */
void memscope_walk_child_end(struct memscope_walk_child *child);

#endif
