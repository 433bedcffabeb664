/*
 * The pages of Ruby's heap by slot size, and bounds on the number of them with objects after compaction. Arithmetic on
 * a listing and its pins: no VALUE, any context.
 */
#pragma once

#include "record_structs.h"

#include "ledger/ruby_regions.h"
#include "ruby/heap/heap_pins.h"

#define MEMSCOPE_TENTHS 10

struct memscope_slot_size {
    MEMSCOPE_EMBED(slot_sums); /* free_slots and the compactable bytes are 0 */
    size_t most_slots;
    size_t tenths[MEMSCOPE_TENTHS]; /* pages by the live share of their slots: 0 to 0.1, 0.1 to 0.2, … */
    struct memscope_resizes resizes;
    size_t fewest_pages, most_pages; /* after compaction */
};

struct memscope_slot_sizes {
    struct memscope_slot_size list[MEMSCOPE_SLOT_SIZES], total;
    size_t count;
};

/* pinned_pages_first: compaction fills pages in descending order of pinned objects, as it has since Ruby 3.2. */
void memscope_slot_sizes_sum(const struct memscope_heap_page *pages, size_t count,
                             const struct memscope_heap_pins *pins, bool pinned_pages_first,
                             struct memscope_slot_sizes *sizes);
