/*
 * The objects that the roots reach, by the references that the mark phase would follow: a bit for each slot of a
 * listing. An object whose bit is not set is garbage.
 */
#pragma once

#include "base/scratch.h"
#include "base/status.h"
#include "ruby/heap/page_index.h"

struct memscope_marking {
    struct memscope_page_index pages;
    uint64_t *marked; /* a bit a slot */
    VALUE *open;      /* marked objects whose references were not followed yet */
    size_t open_count;
    enum memscope_status status;
};

/*
 * Follows all references. Runs the mark functions of C extensions, as a garbage collection does. Creates no object, and
 * sweeps nothing. Takes 60 to 150 ns per object. Caller holds the GVL, or is the only thread of a forked child. No
 * collection is under way, and no other Ractor is alive. Returns NO_MEMORY, TRUNCATED beyond 2^32 slots, or UNSUPPORTED
 * if Ruby does not export references. Always close it.
 */
enum memscope_status memscope_marking_make(struct memscope_marking *marking,
                                           const struct memscope_heap_listing *listing,
                                           struct memscope_scratch *scratch);

static inline bool memscope_is_marked(const struct memscope_marking *marking, uint32_t slot) {
    return (marking->marked[slot / 64] >> (slot % 64) & 1) != 0;
}

void memscope_marking_close(struct memscope_marking *marking);
