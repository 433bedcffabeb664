#include "values.h"

#include "ruby/heap/heap_walk.h"
#include "ruby/heap/pin_survey.h"
#include "ruby/ruby_private.h"

#include <string.h>

struct pass {
    struct memscope_heap_listing *listing;
    unsigned subjects;
    struct memscope_pin_survey pins;
    struct memscope_held_walk held;
};

/*
 * The dsize function of a garbage object may read other objects that are already swept. Objects of Ruby's own types
 * count only memory that they own, which is not freed yet.
 */
static bool may_be_asked(const struct pass *pass, VALUE object) {
    return !pass->pins.doubtful || RB_BUILTIN_TYPE(object) != RUBY_T_DATA;
}

static void walk_page(struct pass *pass, size_t index) {
    struct memscope_heap_page *page = &pass->listing->pages[index];
    uintptr_t slot = page->start + page->slots_offset;

    page->live_count = 0;
    for (uint32_t left = page->slot_count; left > 0; left--, slot += page->slot_bytes) {
        __builtin_prefetch((const void *)(slot + MEMSCOPE_PREFETCH_AHEAD));
        if (RB_BUILTIN_TYPE((VALUE)slot) == RUBY_T_NONE)
            continue;
        page->live_count++;
        if (!memscope_is_object((VALUE)slot)) /* a zombie or a forwarding address still occupies its slot */
            continue;
        pass->pins.doubtful = pass->listing->unswept && !memscope_object_is_marked((VALUE)slot);
        if (pass->subjects & MEMSCOPE_WALK_PINS)
            memscope_pin_survey_visit(&pass->pins, (VALUE)slot, index);
        if ((pass->subjects & MEMSCOPE_WALK_HELD) && may_be_asked(pass, (VALUE)slot))
            memscope_heap_held_visit(&pass->held, (VALUE)slot, page->slot_bytes);
    }
}

void memscope_heap_walk(struct memscope_heap_listing *listing, struct memscope_scratch *scratch, unsigned subjects,
                        struct memscope_heap_walk *walk) {
    struct pass pass = {.listing = listing, .subjects = subjects};
    struct memscope_heap_pins pins = {0};
    uint64_t start = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    size_t used = scratch->used;

    memset(walk, 0, sizeof *walk);
    if (subjects & MEMSCOPE_WALK_PINS)
        memscope_pin_survey_open(&pass.pins, listing, scratch, &pins);
    if (subjects & MEMSCOPE_WALK_HELD)
        memscope_heap_held_open(&pass.held, &walk->held);
    for (size_t index = 0; index < listing->count; index++)
        walk_page(&pass, index);
    if (subjects & MEMSCOPE_WALK_PINS)
        memscope_pin_survey_close(&pass.pins);
    if (subjects & MEMSCOPE_WALK_HELD)
        memscope_heap_held_close(&pass.held);
    memscope_slot_sizes_sum(listing->pages, listing->count, &pins, MEMSCOPE_COMPACTS_PINNED_PAGES_FIRST, &walk->sizes);
    walk->pins_refusal = pins.refusal;
    walk->scratch_bytes = scratch->used - used;
    walk->spent_ns = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
}
