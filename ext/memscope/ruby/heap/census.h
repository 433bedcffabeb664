/*
 * A census of Ruby's heap: the number of objects by class, type, internal kind, slot size and age, and the bytes of
 * their slots and malloc memory. One pass over all slots of a listing includes internal objects and garbage that is not
 * collected yet.
 */
#pragma once

#include "record_structs.h"

#include "base/range.h"
#include "base/shared_room.h"
#include "graph/names.h"
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

struct memscope_census_row {
    MEMSCOPE_EMBED(census_sums);
    uint32_t grouping;
};

/*
 * Rows sum to the total in each grouping, with two exceptions. Only internal objects have an imemo row. From Ruby 4.0
 * on, an imemo_fields adds its bytes, but no count, to the class of the object whose instance variables it has.
 */
struct memscope_census {
    const char *refusal; /* the reason for no census, a constant, NULL if there is one */
    struct memscope_census_sums total;
    struct memscope_census_row *rows; /* in the room, as are the names */
    size_t row_count;
    struct memscope_names names;
    struct memscope_held_memory held;
    uint64_t spent_ns; /* CPU time */
    size_t scratch_bytes;
};

/* Ascending, disjoint address ranges that outlast the census. Objects that begin in one are not counted. */
struct memscope_census_excluded {
    const struct memscope_range *ranges;
    size_t count;
};

/*
 * Takes a census. Caller holds the GVL, or is the only thread of a forked child. No sweep is under way, and no other
 * Ractor is alive. Allocates in scratch and in the room only, and creates no object. 8 to 12 ms per million objects.
 */
void memscope_census_take(const struct memscope_heap_listing *listing, const struct memscope_census_excluded *excluded,
                          struct memscope_scratch *scratch, struct memscope_shared_room *room,
                          struct memscope_census *census);
