#include "values.h"

#include "fork/fork_cost.h"
#include "ruby/heap/heap_walk.h"
#include "ruby/heap/pin_survey.h"
#include "ruby/ruby_private.h"

#include <string.h>

/*
 * A walk takes tens of milliseconds; on a busy machine, at low priority and with pages to copy on write, many times
 * that.
 */
#define DEADLINE_MS 10000

/* Nanoseconds per thousand slots, by subjects: at first as measured on an idle machine, then by the last walk. */
static memscope_slot_rate ns_of_1000_slots[] = {4000, 16000, 10000, 24000};

void memscope_heap_walk_took(const struct memscope_heap_walk *walk, unsigned subjects) {
    memscope_slot_rate_learn(&ns_of_1000_slots[subjects], walk->slots, walk->spent_ns);
}

uint64_t memscope_heap_walk_predicted_ns(uint64_t slots, unsigned subjects) {
    return memscope_slot_rate_predict(&ns_of_1000_slots[subjects], slots);
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

struct pass {
    struct memscope_heap_listing *listing;
    unsigned subjects;
    struct memscope_pin_survey pins;
    struct memscope_held_walk held;
};

/* A zombie or a forwarding address still occupies its slot, but is no object. */
static bool is_object(VALUE slot) {
    return RB_BUILTIN_TYPE(slot) != RUBY_T_MOVED && RB_BUILTIN_TYPE(slot) != RUBY_T_ZOMBIE;
}

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
        if (RB_BUILTIN_TYPE((VALUE)slot) == RUBY_T_NONE)
            continue;
        page->live_count++;
        if (!is_object((VALUE)slot))
            continue;
        pass->pins.doubtful = pass->listing->unswept && !MEMSCOPE_IS_MARKED((VALUE)slot);
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
    uint64_t start = memscope_thread_ns();
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
    walk->slots = listing->slots;
    walk->spent_ns = memscope_thread_ns() - start;
    memscope_heap_walk_took(walk, subjects);
}

/* ---- in a forked child ----------------------------------------------------------------------------------------- */

static bool walk_and_answer(void *argument, int answer) {
    struct memscope_walk_child *child = argument;
    struct memscope_scratch scratch;

    if (memscope_scratch_open(&scratch) != MEMSCOPE_OK)
        return false;
    memscope_heap_walk(child->listing, &scratch, child->subjects, &child->found);
    return memscope_forked_child_answer(answer, &child->found, sizeof child->found);
}

enum memscope_status memscope_walk_child_start(struct memscope_walk_child *child) {
    enum memscope_status status;

    memscope_scratch_inherit(&child->listing->scratch, true);
    status = memscope_forked_child_start(&child->process, walk_and_answer, child, -1, DEADLINE_MS);
    memscope_scratch_inherit(&child->listing->scratch, false);
    return status;
}

void memscope_walk_child_end(struct memscope_walk_child *child) {
    memscope_forked_child_end(&child->process);
}
