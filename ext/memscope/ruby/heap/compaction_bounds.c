#include "ruby/heap/compaction_bounds.h"

#include <string.h>

/* ---- sums by slot size ---------------------------------------------------------------------------------------- */

static void add_page(struct memscope_slot_size *size, const struct memscope_heap_page *page, unsigned pins) {
    size_t tenth = page->live_count * (size_t)MEMSCOPE_TENTHS / page->slot_count;

    size->pages++;
    size->hidden_empty_pages += page->live_count == 0;
    size->slots += page->slot_count;
    size->live_slots += page->live_count;
    if (page->slot_count > size->most_slots)
        size->most_slots = page->slot_count;
    size->tenths[tenth < MEMSCOPE_TENTHS ? tenth : MEMSCOPE_TENTHS - 1]++;
    size->pinned_pages_min += (pins & MEMSCOPE_PAGE_PINS) != 0;
    size->pinned_pages_max += pins != 0;
}

static struct memscope_slot_size *size_of(struct memscope_slot_sizes *sizes, size_t slot_bytes) {
    size_t at = 0;

    while (at < sizes->count && sizes->list[at].resizes.slot_bytes != slot_bytes)
        at++;
    if (at == MEMSCOPE_SLOT_SIZES)
        return NULL;
    if (at == sizes->count)
        sizes->list[sizes->count++].resizes.slot_bytes = slot_bytes;
    return &sizes->list[at];
}

static void add_size(struct memscope_slot_size *total, const struct memscope_slot_size *size) {
    total->pages += size->pages;
    total->hidden_empty_pages += size->hidden_empty_pages;
    total->slots += size->slots;
    total->live_slots += size->live_slots;
    total->pinned_pages_min += size->pinned_pages_min;
    total->pinned_pages_max += size->pinned_pages_max;
    total->fewest_pages += size->fewest_pages;
    total->most_pages += size->most_pages;
    for (size_t tenth = 0; tenth < MEMSCOPE_TENTHS; tenth++)
        total->tenths[tenth] += size->tenths[tenth];
}

/* ---- bounds --------------------------------------------------------------------------------------------------- */

/*
 * The number of a size's resizing objects that must stay, since objects can change slot size only while the target
 * sizes have free slots. On which pages they stay is not known.
 */
static size_t staying(const struct memscope_slot_sizes *sizes, const struct memscope_slot_size *size) {
    size_t room = 0, unplaced = 0;

    for (size_t index = 0; index < sizes->count; index++)
        unplaced += sizes->list[index].resizes.unplaced;
    for (size_t index = 0; index < sizes->count; index++) {
        const struct memscope_slot_size *target = &sizes->list[index];
        size_t vacant = target->slots - target->live_slots, wanted = target->resizes.target + unplaced;

        room += wanted < vacant ? wanted : vacant;
    }
    return size->resizes.source > room ? size->resizes.source - room : 0;
}

static size_t pages_for(const struct memscope_slot_size *size, size_t slots) {
    return (slots + size->most_slots - 1) / size->most_slots;
}

/*
 * Lower bound: perfect packing around the surely pinned pages, after all objects that can resize have left this size.
 */
static size_t fewest_pages(const struct memscope_slot_size *size, size_t stay) {
    size_t needed = pages_for(size, size->live_slots - size->resizes.source + stay);

    return needed > size->pinned_pages_min ? needed : size->pinned_pages_min;
}

/*
 * Upper bound: every object that may be pinned is pinned. Unless compaction fills pinned pages first, all pinned pages
 * may come after the pages that it fills. One page more, since compaction ends inside the page where its two cursors
 * meet.
 */
static size_t most_pages(const struct memscope_slot_size *size, bool pinned_pages_first) {
    size_t pinned = size->pinned_pages_max, needed;

    if (pinned_pages_first) {
        needed = pages_for(size, size->live_slots + size->resizes.target);
        needed = (needed > pinned ? needed : pinned) + 1;
    } else {
        needed = pages_for(size, size->live_slots > pinned ? size->live_slots - pinned : 0) + pinned + 1;
    }
    return needed < size->pages ? needed : size->pages;
}

void memscope_slot_sizes_sum(const struct memscope_heap_page *pages, size_t count,
                             const struct memscope_heap_pins *pins, bool pinned_pages_first,
                             struct memscope_slot_sizes *sizes) {
    memset(sizes, 0, sizeof *sizes);
    sizes->count = pins->slot_sizes;
    for (size_t index = 0; index < pins->slot_sizes; index++)
        sizes->list[index].resizes = pins->resizes[index];
    for (size_t index = 0; index < count; index++) {
        struct memscope_slot_size *size = size_of(sizes, pages[index].slot_bytes);

        if (size != NULL)
            add_page(size, &pages[index], pins->pages == NULL ? 0 : pins->pages[index]);
    }
    for (size_t index = 0; index < sizes->count; index++) {
        struct memscope_slot_size *size = &sizes->list[index];

        size->fewest_pages = fewest_pages(size, staying(sizes, size));
        size->most_pages = most_pages(size, pinned_pages_first);
        add_size(&sizes->total, size);
    }
}
