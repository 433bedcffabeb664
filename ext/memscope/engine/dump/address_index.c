#include "dump/address_index.h"

#include <string.h>

#include "base/keyed_hash.h"
#include "base/mapped_array.h"
#include "base/merge_sort.h"

/* The maximum shift of addresses. A chunk is then 16 KiB, and all its objects are in one page of Ruby's heap. */
#define SHIFT_MAX 8

/* Objects to prefetch ahead: those of a few chunks. */
#define AHEAD 64

/* ---- in the order of the dump ---------------------------------------------------------------------------------- */

/* Returns false unless the object follows the last one of its chunk both by address and by rank. */
static bool add(struct memscope_address_index *index, uint64_t address, uint32_t rank) {
    struct memscope_address_entry *entry = memscope_address_entry_of(index, address);
    uint64_t bit = memscope_address_bit(index, address);
    bool is_next;

    if (entry->number == 0)
        *entry = (struct memscope_address_entry){.number = (address >> index->shift >> 6) + 1, .first = rank};
    is_next = entry->objects < bit && entry->first + (uint32_t)__builtin_popcountll(entry->objects) == rank;
    entry->objects |= bit;
    return is_next;
}

/* Returns MALFORMED if the objects of a chunk do not come one after another, by address. */
static enum memscope_status add_all(struct memscope_address_index *index, const uint64_t *addresses, uint32_t count) {
    uint64_t chunks = 1;
    bool in_order = true;

    for (uint32_t rank = 1; rank < count; rank++)
        chunks += addresses[rank] >> index->shift >> 6 != addresses[rank - 1] >> index->shift >> 6;
    index->size = chunks + chunks / 2 + 16;
    index->entries = memscope_array_map(index->size, sizeof *index->entries);
    if (index->entries == NULL)
        return MEMSCOPE_NO_MEMORY;
    for (uint32_t rank = 0; rank < count && in_order; rank++) {
        if (count - rank > AHEAD)
            __builtin_prefetch(memscope_address_place(index, addresses[rank + AHEAD]), 1);
        in_order = add(index, addresses[rank], rank);
    }
    return in_order ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

/* ---- in any order ---------------------------------------------------------------------------------------------- */

struct place {
    uint64_t address;
    uint32_t node;
};

static bool by_address(const void *left, const void *right) {
    return ((const struct place *)left)->address <= ((const struct place *)right)->address;
}

/* Writes each address once, with the first node that has it. Returns the number of addresses. */
static uint32_t keep_first(const struct place *places, uint32_t count, uint64_t *addresses, uint32_t *nodes) {
    uint32_t kept = 0;

    for (uint32_t index = 0; index < count; index++) {
        if (kept > 0 && addresses[kept - 1] == places[index].address)
            continue;
        addresses[kept] = places[index].address;
        nodes[kept++] = places[index].node;
    }
    return kept;
}

static enum memscope_status add_sorted(struct memscope_address_index *index, const uint64_t *addresses, uint32_t count,
                                       struct place *places, uint64_t *sorted) {
    for (uint32_t node = 0; node < count; node++)
        places[node] = (struct place){.address = addresses[node], .node = node};
    memscope_merge_sort((char *)places, count, sizeof *places, (char *)(places + count), by_address);
    return add_all(index, sorted, keep_first(places, count, sorted, index->node));
}

static enum memscope_status sort_and_add(struct memscope_address_index *index, const uint64_t *addresses,
                                         uint32_t count) {
    struct place *places = memscope_array_map((size_t)count * 2, sizeof *places);
    uint64_t *sorted = memscope_array_map(count, sizeof *sorted);
    enum memscope_status status = MEMSCOPE_NO_MEMORY;

    memscope_array_unmap(index->entries);
    index->entries = NULL;
    index->node = memscope_array_map(count, sizeof *index->node);
    if (places != NULL && sorted != NULL && index->node != NULL)
        status = add_sorted(index, addresses, count, places, sorted);
    memscope_arrays_unmap(places, sorted);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

enum memscope_status memscope_address_index_open(struct memscope_address_index *index, const uint64_t *addresses,
                                                 uint32_t count) {
    uint64_t all = UINT64_C(1) << SHIFT_MAX;
    struct memscope_hash_key key;
    enum memscope_status status;

    memset(index, 0, sizeof *index);
    memscope_hash_key_draw(&key);
    index->key = key.words[0];
    for (uint32_t node = 0; node < count; node++)
        all |= addresses[node];
    index->shift = (unsigned)__builtin_ctzll(all);
    status = add_all(index, addresses, count);
    if (status == MEMSCOPE_MALFORMED)
        status = sort_and_add(index, addresses, count);
    if (status != MEMSCOPE_OK)
        memscope_address_index_close(index);
    return status;
}

void memscope_address_index_close(struct memscope_address_index *index) {
    memscope_arrays_unmap(index->entries, index->node);
    memset(index, 0, sizeof *index);
}
