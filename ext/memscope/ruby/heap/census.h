/*
 * A census of Ruby's heap: how many objects there are of each class, type, internal kind, slot size and age, and the
 * bytes of their slots and malloc memory. One pass over all slots of a listing: internal objects count too, and so does
 * garbage that is not collected yet.
 */
#ifndef MEMSCOPE_CENSUS_H
#define MEMSCOPE_CENSUS_H

#include "base/range.h"
#include "base/status.h"
#include "fork/forked_child.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/held_memory.h"

enum memscope_census_grouping {
    MEMSCOPE_BY_CLASS,
    MEMSCOPE_BY_TYPE,
    MEMSCOPE_BY_IMEMO,
    MEMSCOPE_BY_SLOT_SIZE,
    MEMSCOPE_BY_AGE,
    MEMSCOPE_CENSUS_GROUPINGS,
};

struct memscope_census_sums {
    uint64_t count, slot_bytes;
    uint64_t memsize_bytes; /* slots, and the malloc memory that objects report */
    uint64_t old_count;     /* objects that only a major GC can free */
    uint64_t unsized_count; /* by class: objects of C code, not Ruby's, that report hardly any malloc memory */
};

struct memscope_census_row {
    struct memscope_census_sums sums;
    uint32_t grouping;
    uint32_t name, name_bytes; /* in `names`; not NUL-terminated */
};

/*
 * Rows sum to the total in each grouping, with two exceptions: only internal objects have an imemo row; and from Ruby
 * 4.0 on, an object that holds the instance variables of another object (imemo_fields) adds bytes to the class of that
 * other object, but no count.
 */
struct memscope_census {
    const char *refusal; /* why there is no census, a constant; NULL if there is one */
    struct memscope_census_sums total;
    struct memscope_census_row *rows; /* in order of grouping; in scratch, or in a child's shared mapping */
    size_t row_count;
    char *names;
    size_t names_bytes;
    struct memscope_held_memory held;
    uint64_t slots, spent_ns;
    size_t scratch_bytes;
};

/* Ascending, disjoint address ranges, which outlast the census: objects that begin in one are not counted. */
struct memscope_census_excluded {
    const struct memscope_range *ranges;
    size_t count;
};

/*
 * Takes a census. Caller holds the GVL, or is the only thread of a forked child; no sweep is under way, and no other
 * Ractor alive. Allocates in scratch only, and creates no object. 8 to 12 ms per million objects.
 */
void memscope_census_take(const struct memscope_heap_listing *listing, const struct memscope_census_excluded *excluded,
                          struct memscope_scratch *scratch, struct memscope_census *census);

/* How long a census of this many slots will take in the process, judging by the last one. */
uint64_t memscope_census_predicted_ns(uint64_t slots);

/* Call it with a child's answer: memscope_census_predicted_ns learns from it. */
void memscope_census_took(const struct memscope_census *census);

/* A census in a forked child. Rows and names come through a mapping that parent and child share. */
struct memscope_census_child {
    const struct memscope_heap_listing *listing;
    struct memscope_census_excluded excluded;
    struct memscope_forked_child process;
    struct memscope_census found; /* the answer; rows and names last until the end */
    char *shared;
};

/*
 * Starts the child. Caller holds the GVL, which the functions below do not need. `child` and its listing must not move
 * before memscope_census_child_end. Fails as memscope_forked_child_start does, and with NO_MEMORY if no shared mapping
 * can be made.
 */
enum memscope_status memscope_census_child_start(struct memscope_census_child *child);

/* Idempotent. */
void memscope_census_child_end(struct memscope_census_child *child);

#endif
