/*
 * Finds objects of a dump by address. Objects that were allocated together are side by side, and mostly refer to each
 * other. So one entry covers 64 steps of addresses, and is in the processor's cache for most references. In mapped
 * memory.
 */
#pragma once

#include "base/status.h"
#include "graph/heap_graph.h"

/* The objects in a chunk: 64 steps of addresses. */
struct memscope_address_entry {
    uint64_t number;  /* of the chunk, plus 1, or 0 for none */
    uint64_t objects; /* a bit for each step, set if an object begins there */
    uint32_t first;   /* rank, among all objects, of the chunk's first object */
};

struct memscope_address_index {
    struct memscope_address_entry *entries;
    uint64_t size, key;
    unsigned shift; /* a step is 1 << shift bytes, and all addresses are multiples of it */
    uint32_t *node; /* by rank, or NULL if each node is its rank, since Ruby writes a heap page's objects by address */
};

/* Of several objects at one address, the first counts. After a failure the index is closed. */
enum memscope_status memscope_address_index_open(struct memscope_address_index *index, const uint64_t *addresses,
                                                 uint32_t count);

/* Idempotent. A zeroed index is closed. */
void memscope_address_index_close(struct memscope_address_index *index);

/* The key is drawn for each index, so that nobody can construct a dump in which all addresses collide. */
static inline struct memscope_address_entry *memscope_address_place(const struct memscope_address_index *index,
                                                                    uint64_t address) {
    uint64_t mixed = (address >> index->shift >> 6 ^ index->key) * UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return &index->entries[((mixed >> 32) * index->size) >> 32];
}

static inline struct memscope_address_entry *memscope_address_entry_of(const struct memscope_address_index *index,
                                                                       uint64_t address) {
    struct memscope_address_entry *entry = memscope_address_place(index, address);
    uint64_t number = (address >> index->shift >> 6) + 1;

    while (entry->number != 0 && entry->number != number)
        entry = entry + 1 == index->entries + index->size ? index->entries : entry + 1;
    return entry;
}

static inline uint64_t memscope_address_bit(const struct memscope_address_index *index, uint64_t address) {
    return UINT64_C(1) << (address >> index->shift & 63);
}

/* The node of the object at this address, MEMSCOPE_NO_NODE if there is none. */
static inline uint32_t memscope_address_find(const struct memscope_address_index *index, uint64_t address) {
    const struct memscope_address_entry *entry = memscope_address_entry_of(index, address);
    uint64_t bit = memscope_address_bit(index, address);
    uint32_t rank = entry->first + (uint32_t)__builtin_popcountll(entry->objects & (bit - 1));

    if (!(entry->objects & bit) || address >> index->shift << index->shift != address)
        return MEMSCOPE_NO_NODE;
    return index->node == NULL ? rank : index->node[rank];
}
