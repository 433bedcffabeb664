#include "ruby/heap/marking.h"

#include "base/mapped_array.h"
#include "ruby/heap/roots.h"
#include "ruby/ruby_private.h"

#include <string.h>

/* ---- slots ----------------------------------------------------------------------------------------------------- */

static enum memscope_status open_marking(struct memscope_marking *marking, const struct memscope_heap_listing *listing,
                                         struct memscope_scratch *scratch) {
    memset(marking, 0, sizeof *marking);
    if (!memscope_page_index_open(&marking->pages, listing, scratch))
        return MEMSCOPE_NO_MEMORY;
    if (listing->slots > UINT32_MAX)
        return MEMSCOPE_TRUNCATED;
    marking->marked = memscope_array_map((size_t)listing->slots / 64 + 1, sizeof *marking->marked);
    return marking->marked != NULL ? MEMSCOPE_OK : MEMSCOPE_NO_MEMORY;
}

/* Returns false if the object was marked, or is not listed. */
static bool mark(struct memscope_marking *marking, VALUE object) {
    uint32_t slot = memscope_slot_of(&marking->pages, object);

    if (slot == MEMSCOPE_NO_SLOT || memscope_is_marked(marking, slot))
        return false;
    marking->marked[slot / 64] |= UINT64_C(1) << (slot % 64);
    return true;
}

void memscope_marking_close(struct memscope_marking *marking) {
    memscope_arrays_unmap(marking->marked, marking->open);
    marking->marked = NULL;
    marking->open = NULL;
}

/* ---- following references -------------------------------------------------------------------------------------- */

static void reach(VALUE object, void *data) {
    struct memscope_marking *marking = data;

    if (marking->status != MEMSCOPE_OK || !mark(marking, object))
        return;
    if (!MEMSCOPE_ARRAY_RESERVE(marking->open, marking->open_count + 1)) {
        marking->status = MEMSCOPE_NO_MEMORY;
        return;
    }
    marking->open[marking->open_count++] = object;
}

static void reach_root(const char *category, VALUE object, void *data) {
    reach(object, data);
}

/* Objects that are prefetched before the references of the first of them are followed. */
#define AHEAD 8

static void follow(struct memscope_marking *marking) {
    VALUE soon[AHEAD] = {0};

    for (size_t turn = 0, idle = 0; idle < AHEAD && marking->status == MEMSCOPE_OK; turn++) {
        VALUE *place = &soon[turn % AHEAD], object = *place;

        *place = marking->open_count > 0 ? marking->open[--marking->open_count] : 0;
        __builtin_prefetch((const void *)*place);
        idle = object == 0 && *place == 0 ? idle + 1 : 0;
        if (object != 0)
            memscope_each_reference(object, reach, marking);
    }
}

enum memscope_status memscope_marking_make(struct memscope_marking *marking,
                                           const struct memscope_heap_listing *listing,
                                           struct memscope_scratch *scratch) {
    enum memscope_status status = open_marking(marking, listing, scratch);

    marking->status = MEMSCOPE_FOLLOWS_REFERENCES ? status : MEMSCOPE_UNSUPPORTED;
    if (marking->status == MEMSCOPE_OK) {
        memscope_each_root(&marking->pages, reach_root, marking);
        follow(marking);
    }
    return marking->status;
}
