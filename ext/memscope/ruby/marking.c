#include "values.h"

#include "ruby/marking.h"

#include "base/mapped_array.h"
#include "ruby/heap_references.h"
#include "ruby/ruby_private.h"

#include <string.h>

#define NO_SLOT UINT64_MAX
#define FIRST_RESERVED ((size_t)1 << 16)

/* ---- slots ----------------------------------------------------------------------------------------------------- */

static uint64_t slot_of(const struct memscope_marking *marking, uintptr_t object) {
    const struct memscope_heap_page *page;
    size_t at = RB_SPECIAL_CONST_P((VALUE)object) ? MEMSCOPE_NO_PAGE : memscope_page_of(&marking->pages, object);
    uintptr_t first;

    if (at == MEMSCOPE_NO_PAGE)
        return NO_SLOT;
    page = &marking->pages.listing->pages[at];
    first = page->start + page->slots_offset;
    if (object < first || (object - first) / page->slot_bytes >= page->slot_count)
        return NO_SLOT;
    return marking->first_slots[at] + (object - first) / page->slot_bytes;
}

enum memscope_status memscope_marking_open(struct memscope_marking *marking,
                                           const struct memscope_heap_listing *listing,
                                           struct memscope_scratch *scratch) {
    uint64_t slots = 0;

    memset(marking, 0, sizeof *marking);
    marking->first_slots = memscope_scratch_take(scratch, (listing->count + 1) * sizeof *marking->first_slots);
    if (marking->first_slots == NULL || !memscope_page_index_open(&marking->pages, listing, scratch))
        return MEMSCOPE_NO_MEMORY;
    for (size_t page = 0; page < listing->count; page++) {
        marking->first_slots[page] = (uint32_t)slots;
        slots += listing->pages[page].slot_count;
    }
    if (slots > UINT32_MAX)
        return MEMSCOPE_TRUNCATED;
    marking->marked = memscope_array_map((size_t)slots / 64 + 1, sizeof *marking->marked);
    return marking->marked != NULL ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;
}

bool memscope_marking_add(struct memscope_marking *marking, uintptr_t object) {
    uint64_t slot = slot_of(marking, object);

    if (slot == NO_SLOT || memscope_is_marked(marking, (uint32_t)slot))
        return false;
    marking->marked[slot / 64] |= UINT64_C(1) << (slot % 64);
    return true;
}

void memscope_marking_close(struct memscope_marking *marking) {
    memscope_array_unmap(marking->marked);
    memscope_array_unmap(marking->open);
    marking->marked = marking->open = NULL;
}

/* ---- following references -------------------------------------------------------------------------------------- */

#ifdef HAVE_RB_OBJSPACE_REACHABLE_OBJECTS_FROM

static void reach(VALUE object, void *data) {
    struct memscope_marking *marking = data;

    if (marking->status != MEMSCOPE_OK || !memscope_marking_add(marking, object))
        return;
    if (marking->open_count == marking->open_reserved) {
        size_t wanted = marking->open_reserved == 0 ? FIRST_RESERVED : 2 * marking->open_reserved;
        uint64_t *grown = marking->open == NULL ? memscope_array_map(wanted, sizeof *grown)
                                                : memscope_array_grow(marking->open, wanted, sizeof *grown);

        if (grown == NULL) {
            marking->status = MEMSCOPE_NO_MEMORY;
            return;
        }
        marking->open = grown;
        marking->open_reserved = wanted;
    }
    marking->open[marking->open_count++] = object;
}

static void reach_root(const char *category, VALUE object, void *data) {
    reach(object, data);
}

static void follow(struct memscope_marking *marking) {
    while (marking->open_count > 0 && marking->status == MEMSCOPE_OK)
        rb_objspace_reachable_objects_from((VALUE)marking->open[--marking->open_count], reach, marking);
}

/* Garbage that looks like a list of finalizers counts as reachable. */
static void reach_finalizers(struct memscope_marking *marking) {
    const struct memscope_heap_listing *listing = marking->pages.listing;

    for (size_t at = 0; at < listing->count; at++) {
        const struct memscope_heap_page *page = &listing->pages[at];
        VALUE slot = page->start + page->slots_offset;

        for (uint32_t left = page->slot_count; left > 0; left--, slot += page->slot_bytes)
            if (memscope_may_be_finalizers(slot))
                reach(slot, marking);
    }
}

enum memscope_status memscope_marking_make(struct memscope_marking *marking,
                                           const struct memscope_heap_listing *listing,
                                           struct memscope_scratch *scratch) {
    marking->status = memscope_marking_open(marking, listing, scratch);
    if (marking->status != MEMSCOPE_OK)
        return marking->status;
    rb_objspace_reachable_objects_from_root(reach_root, marking);
    if (MEMSCOPE_ROOTS_LACK_FINALIZERS)
        reach_finalizers(marking);
    follow(marking);
    return marking->status;
}

#else

enum memscope_status memscope_marking_make(struct memscope_marking *marking,
                                           const struct memscope_heap_listing *listing,
                                           struct memscope_scratch *scratch) {
    memset(marking, 0, sizeof *marking);
    return MEMSCOPE_UNSUPPORTED;
}

#endif
