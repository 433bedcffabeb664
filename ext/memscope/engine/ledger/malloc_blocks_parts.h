/* Internals that malloc_blocks.c shares only with its parts for each allocator. */
#pragma once

#include "ledger/malloc_blocks.h"

/* The region that contains address, or NULL, and the unit of an address in it. */
const struct memscope_malloc_region *memscope_malloc_region_at(struct memscope_malloc_blocks *blocks,
                                                               uintptr_t address);
static inline size_t memscope_unit_at(const struct memscope_malloc_blocks *blocks,
                                      const struct memscope_malloc_region *region, uintptr_t address) {
    return region->first_unit + (address - region->start) / blocks->unit_bytes;
}

static inline bool memscope_bit(const uint64_t *bits, size_t index) {
    return (bits[index / 64] >> (index % 64) & 1) != 0;
}

static inline void memscope_set_bit(uint64_t *bits, size_t index) {
    bits[index / 64] |= UINT64_C(1) << (index % 64);
}

/* Adds the resident bytes of [start, end) to both bounds, or to the upper one only. */
void memscope_returned_add(const struct memscope_malloc_blocks *blocks, struct memscope_returned *returned,
                           uintptr_t start, uintptr_t end, bool certain);

/* glibc_blocks.c */
size_t memscope_glibc_block_bytes(const struct memscope_malloc_region *region, uintptr_t address);
enum memscope_status memscope_glibc_blocks_returned(struct memscope_malloc_blocks *blocks,
                                                    struct memscope_blocks_returned *returned);

/* jemalloc_blocks.c */
bool memscope_jemalloc_blocks_open(struct memscope_malloc_blocks *blocks);
size_t memscope_jemalloc_block_bytes(uintptr_t address);
void memscope_jemalloc_block_count(struct memscope_malloc_blocks *blocks, const struct memscope_malloc_region *region,
                                   uintptr_t address, size_t bytes, bool garbage);
enum memscope_status memscope_jemalloc_blocks_returned(struct memscope_malloc_blocks *blocks,
                                                       struct memscope_blocks_returned *returned);
