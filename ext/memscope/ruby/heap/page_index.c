#include "ruby/heap/page_index.h"

#include "base/range.h"

#include <string.h>

static void add(struct memscope_page_index *index, size_t at) {
    const struct memscope_heap_page *page = &index->listing->pages[at];
    size_t place = memscope_page_place(index, page->start);

    while (index->table[place].first_slot != 0)
        place = (place + 1) & index->mask;
    index->table[place] = (struct memscope_page_entry){.first_slot = page->start + page->slots_offset,
                                                       .page = (uint32_t)at,
                                                       .inverse = UINT32_MAX / page->slot_bytes + 1};
}

bool memscope_page_index_open(struct memscope_page_index *index, const struct memscope_heap_listing *listing,
                              struct memscope_scratch *scratch) {
    uint64_t slots = 0;
    size_t size = 16;

    while (size < listing->count * 2)
        size *= 2;
    *index = (struct memscope_page_index){
        .listing = listing, .mask = size - 1, .page_shift = (unsigned)__builtin_ctzll(listing->page_bytes)};
    index->table = memscope_scratch_take(scratch, size * sizeof *index->table);
    index->first_slots = memscope_scratch_take(scratch, (listing->count + 1) * sizeof *index->first_slots);
    if (index->table == NULL || index->first_slots == NULL)
        return false;
    memset(index->table, 0, size * sizeof *index->table);
    for (size_t page = 0; page < listing->count; page++) {
        add(index, page);
        index->first_slots[page] = (uint32_t)slots;
        slots += listing->pages[page].slot_count;
    }
    index->first_slots[listing->count] = (uint32_t)slots;
    return true;
}

VALUE memscope_object_in_slot(const struct memscope_page_index *index, uint32_t slot) {
    size_t at = memscope_number_position(index->first_slots, index->listing->count, sizeof(uint32_t), slot + 1) - 1;
    const struct memscope_heap_page *page = &index->listing->pages[at];

    return page->start + page->slots_offset + (VALUE)(slot - index->first_slots[at]) * page->slot_bytes;
}
