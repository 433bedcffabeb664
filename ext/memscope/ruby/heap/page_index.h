/*
 * Finds a listed heap page by the address of an object on it, and numbers the slots of all pages, in the order of the
 * listing, from 0 on.
 */
#pragma once

#include <ruby.h>

#include "base/scratch.h"
#include "ruby/heap/ruby_heap.h"

#define MEMSCOPE_NO_PAGE SIZE_MAX
#define MEMSCOPE_NO_SLOT UINT32_MAX

/* All that is read of a page to number an object's slot, in 16 bytes, so that it is in one cache line. */
struct memscope_page_entry {
    uintptr_t first_slot; /* its address, 0 for an empty place */
    uint32_t page;        /* index in the listing */
    uint32_t inverse;     /* 2^32 / bytes of a slot, rounded up: multiplying by it divides exactly within a page */
};

/* An open-addressing hash table. */
struct memscope_page_index {
    const struct memscope_heap_listing *listing;
    struct memscope_page_entry *table; /* in scratch */
    uint32_t *first_slots; /* the number of each page's first slot, and that of the slot after all, in scratch */
    size_t mask;
    unsigned page_shift; /* log2 of listing->page_bytes */
};

/*
 * False if there is no memory. Numbers are right only up to UINT32_MAX slots. Both listing and scratch must outlive the
 * index.
 */
bool memscope_page_index_open(struct memscope_page_index *index, const struct memscope_heap_listing *listing,
                              struct memscope_scratch *scratch);

/* Where the search for the page of an address begins. */
static inline size_t memscope_page_place(const struct memscope_page_index *index, uintptr_t address) {
    return (size_t)(((address >> index->page_shift) * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & index->mask;
}

static inline const struct memscope_page_entry *memscope_page_entry_of(const struct memscope_page_index *index,
                                                                       uintptr_t address) {
    uintptr_t number = address >> index->page_shift;
    size_t place = memscope_page_place(index, address);

    for (; index->table[place].first_slot != 0; place = (place + 1) & index->mask)
        if (index->table[place].first_slot >> index->page_shift == number)
            return &index->table[place];
    return NULL;
}

/* The page's place in the listing, for any address on the page, or MEMSCOPE_NO_PAGE. */
static inline size_t memscope_page_of(const struct memscope_page_index *index, uintptr_t address) {
    const struct memscope_page_entry *entry = memscope_page_entry_of(index, address);

    return entry == NULL ? MEMSCOPE_NO_PAGE : entry->page;
}

/* MEMSCOPE_NO_SLOT for values outside the listed slots, such as special constants. */
static inline uint32_t memscope_slot_of(const struct memscope_page_index *index, VALUE object) {
    const struct memscope_page_entry *entry = RB_SPECIAL_CONST_P(object) ? NULL : memscope_page_entry_of(index, object);
    uint32_t slot;

    if (entry == NULL || object < entry->first_slot)
        return MEMSCOPE_NO_SLOT;
    slot = index->first_slots[entry->page] + (uint32_t)((object - entry->first_slot) * entry->inverse >> 32);
    return slot < index->first_slots[entry->page + 1] ? slot : MEMSCOPE_NO_SLOT;
}

/* The object in a listed slot. */
VALUE memscope_object_in_slot(const struct memscope_page_index *index, uint32_t slot);

/* False for a free slot, for a zombie, which waits for its finalizer, and for a forwarding address. */
static inline bool memscope_is_object(VALUE slot) {
    int type = RB_BUILTIN_TYPE(slot);

    return type != RUBY_T_NONE && type != RUBY_T_MOVED && type != RUBY_T_ZOMBIE;
}

/* Prefetches this many bytes ahead of the visited slot: visiting objects takes up to a quarter less time. */
#define MEMSCOPE_PREFETCH_AHEAD 1024

/* Visits every object with the number of its slot. Inlined, since it runs for each object of the heap. */
static inline __attribute__((always_inline)) void
memscope_each_object(const struct memscope_page_index *index,
                     void (*visit)(void *data, VALUE object, uint32_t slot, uint32_t slot_bytes), void *data) {
    for (size_t at = 0; at < index->listing->count; at++) {
        const struct memscope_heap_page *page = &index->listing->pages[at];
        VALUE slot = page->start + page->slots_offset;

        for (uint32_t place = 0; place < page->slot_count; place++, slot += page->slot_bytes) {
            __builtin_prefetch((const void *)(slot + MEMSCOPE_PREFETCH_AHEAD));
            if (memscope_is_object(slot))
                visit(data, slot, index->first_slots[at] + place, page->slot_bytes);
        }
    }
}
