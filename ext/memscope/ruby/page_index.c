#include "ruby/page_index.h"

#include <string.h>

static void add(struct memscope_page_index *index, size_t page) {
    uintptr_t number = index->listing->pages[page].start >> index->page_shift;
    size_t place = (size_t)((number * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & index->mask;

    while (index->table[place] != 0)
        place = (place + 1) & index->mask;
    index->table[place] = (uint32_t)(page + 1);
}

bool memscope_page_index_open(struct memscope_page_index *index, const struct memscope_heap_listing *listing,
                              struct memscope_scratch *scratch) {
    size_t size = 16;

    while (size < listing->count * 2)
        size *= 2;
    *index = (struct memscope_page_index){
        .listing = listing, .mask = size - 1, .page_shift = (unsigned)__builtin_ctzll(listing->page_bytes)};
    index->table = memscope_scratch_take(scratch, size * sizeof *index->table);
    if (index->table == NULL)
        return false;
    memset(index->table, 0, size * sizeof *index->table);
    for (size_t page = 0; page < listing->count; page++)
        add(index, page);
    return true;
}
