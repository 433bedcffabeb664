#include "values.h"

#include "ruby/heap/marking.h"

#include "base/mapped_array.h"
#include "ruby/heap/heap_references.h"
#include "ruby/ruby_private.h"

#include <string.h>

/* ---- slots ----------------------------------------------------------------------------------------------------- */

enum memscope_status memscope_marking_open(struct memscope_marking *marking,
                                           const struct memscope_heap_listing *listing,
                                           struct memscope_scratch *scratch) {
    memset(marking, 0, sizeof *marking);
    if (!memscope_page_index_open(&marking->pages, listing, scratch))
        return MEMSCOPE_NO_MEMORY;
    if (listing->slots > UINT32_MAX)
        return MEMSCOPE_TRUNCATED;
    marking->marked = memscope_array_map((size_t)listing->slots / 64 + 1, sizeof *marking->marked);
    return marking->marked != NULL ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;
}

bool memscope_marking_add(struct memscope_marking *marking, uintptr_t object) {
    uint32_t slot = memscope_slot_of(&marking->pages, object);

    if (slot == MEMSCOPE_NO_SLOT || memscope_is_marked(marking, slot))
        return false;
    marking->marked[slot / 64] |= UINT64_C(1) << (slot % 64);
    return true;
}

void memscope_marking_close(struct memscope_marking *marking) {
    memscope_array_unmap(marking->marked);
    marking->marked = NULL;
    memscope_growing_array_close(&marking->open);
}

/* ---- following references -------------------------------------------------------------------------------------- */

#ifdef HAVE_RB_OBJSPACE_REACHABLE_OBJECTS_FROM

static void reach(VALUE object, void *data) {
    struct memscope_marking *marking = data;

    if (marking->status != MEMSCOPE_OK || !memscope_marking_add(marking, object))
        return;
    if (!memscope_growing_array_reserve(&marking->open, (marking->open_count + 1) * sizeof object)) {
        marking->status = MEMSCOPE_NO_MEMORY;
        return;
    }
    ((VALUE *)marking->open.list)[marking->open_count++] = object;
}

static void reach_root(const char *category, VALUE object, void *data) {
    reach(object, data);
}

static void follow(struct memscope_marking *marking) {
    while (marking->open_count > 0 && marking->status == MEMSCOPE_OK)
        rb_objspace_reachable_objects_from(((VALUE *)marking->open.list)[--marking->open_count], reach, marking);
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
