#include "ledger/malloc_blocks_parts.h"

#include <string.h>
#include <unistd.h>

#include "kernel/sharing.h"

/* jemalloc's smallest size class has 8 bytes (LG_TINY_MIN). glibc aligns to 16. */
#define JEMALLOC_UNIT 8
#define GLIBC_UNIT 16

/* ---- regions --------------------------------------------------------------------------------------------------- */

/* The number of units in all regions. Each region's units follow those of the region before it. */
static size_t count_units(const struct memscope_malloc_blocks *blocks) {
    const struct memscope_malloc_region *last;

    if (blocks->region_count == 0)
        return 0;
    last = &blocks->regions[blocks->region_count - 1];
    return last->first_unit + (last->end - last->start) / blocks->unit_bytes;
}

static bool add_region(struct memscope_malloc_blocks *blocks, uintptr_t start, uintptr_t end, enum memscope_row row) {
    const struct memscope_malloc_region added = {
        .start = start, .end = end, .first_unit = count_units(blocks), .row = row};

    return memscope_scratch_add(&blocks->list, &blocks->region_count, &added, sizeof added);
}

/* The row of glibc's blocks in use in a claim, MEMSCOPE_ROW_COUNT if the claim is not glibc's. */
static enum memscope_row in_use_row(uint32_t claimed) {
    switch (claimed) {
    case MEMSCOPE_ROW_arenas:
        return MEMSCOPE_ROW_arenas_in_use;
    case MEMSCOPE_ROW_main_heap:
        return MEMSCOPE_ROW_main_heap_in_use;
    case MEMSCOPE_ROW_mmapped:
        return MEMSCOPE_ROW_mmapped_in_use;
    default:
        return MEMSCOPE_ROW_COUNT;
    }
}

/* Adds the parts of a mapping that no owner has claimed. */
static bool add_unclaimed(struct memscope_malloc_blocks *blocks, const struct memscope_mapping *mapping) {
    enum memscope_row row = mapping->of_jemalloc ? MEMSCOPE_ROW_in_use : MEMSCOPE_ROW_main_heap_in_use;
    uintptr_t cursor = mapping->start, start, end;

    while (memscope_claims_next_gap(&blocks->ledger->claims, &cursor, mapping->end, &start, &end))
        if (!add_region(blocks, start, end, row))
            return false;
    return true;
}

static bool is_main_heap(const struct memscope_ledger *ledger, const struct memscope_mapping *mapping) {
    return ledger->request->malloc == MEMSCOPE_ALLOCATOR_GLIBC && memscope_mapping_is_program_break(mapping);
}

/* Adds, in address order, glibc's claims and the unclaimed parts of mappings that are wholly the allocator's. */
static bool find_regions(struct memscope_malloc_blocks *blocks) {
    const struct memscope_ledger *ledger = blocks->ledger;
    const struct memscope_claim *claim = ledger->claims.list, *end = claim + ledger->claims.settled;

    for (size_t index = 0; index < ledger->mappings.count; index++) {
        const struct memscope_mapping *mapping = &ledger->mappings.list[index];
        bool whole = is_main_heap(ledger, mapping) || mapping->of_jemalloc;

        if (whole && !add_unclaimed(blocks, mapping))
            return false;
        for (; claim < end && claim->start < mapping->end; claim++) {
            enum memscope_row row = in_use_row(claim->row);

            if (!whole && row != MEMSCOPE_ROW_COUNT && !add_region(blocks, claim->start, claim->end, row))
                return false;
        }
    }
    return true;
}

const struct memscope_malloc_region *memscope_malloc_region_at(struct memscope_malloc_blocks *blocks,
                                                               uintptr_t address) {
    const struct memscope_malloc_region *region = &blocks->regions[blocks->last];

    if (blocks->last < blocks->region_count && address >= region->start && address < region->end)
        return region;
    blocks->last = memscope_range_position(blocks->regions, blocks->region_count, sizeof *region, address);
    region = &blocks->regions[blocks->last];
    return blocks->last < blocks->region_count && address >= region->start ? region : NULL;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* Adds what is left of a range. */
static bool add_rest(struct memscope_malloc_blocks *blocks, uintptr_t start, uintptr_t end) {
    return start >= end ||
           memscope_scratch_add_range(&blocks->list, &blocks->private_residency.range_count, start, end);
}

/* Sets private_residency to the resident ranges minus the shared ones. Both lists are sorted. */
static bool subtract(struct memscope_malloc_blocks *blocks, const struct memscope_range *shared, size_t count) {
    const struct memscope_residency *all = &blocks->ledger->residency;
    struct memscope_residency *own = &blocks->private_residency;
    size_t next = 0;

    *own = *all;
    own->range_count = 0;
    own->ranges = memscope_scratch_take(&blocks->list, 0);
    if (own->ranges == NULL)
        return false;
    for (size_t index = 0; index < all->range_count; index++) {
        uintptr_t at = all->ranges[index].start;

        while (next < count && shared[next].start < all->ranges[index].end) {
            if (!add_rest(blocks, at, shared[next].start))
                return false;
            at = shared[next++].end;
        }
        if (!add_rest(blocks, at, all->ranges[index].end))
            return false;
    }
    return true;
}

static enum memscope_status find_private(struct memscope_malloc_blocks *blocks) {
    const struct memscope_range *shared;
    struct memscope_scratch work;
    size_t count;
    enum memscope_status status = memscope_scratch_open(&work);

    if (status == MEMSCOPE_OK)
        status = memscope_sharing_anonymous(&blocks->ledger->residency, &work, &shared, &count);
    if (status == MEMSCOPE_OK && !subtract(blocks, shared, count))
        status = MEMSCOPE_NO_MEMORY;
    memscope_scratch_close(&work);
    return status;
}

static bool take_marks(struct memscope_malloc_blocks *blocks) {
    size_t units = count_units(blocks), words = units / 64 + 1;

    if (units == 0)
        return true;
    blocks->seen = memscope_scratch_take(&blocks->seen_memory, words * sizeof *blocks->seen);
    if (blocks->ledger->request->malloc == MEMSCOPE_ALLOCATOR_GLIBC) {
        blocks->doomed = memscope_scratch_take(&blocks->marks, words * sizeof *blocks->doomed);
        return blocks->seen != NULL && blocks->doomed != NULL;
    }
    blocks->slabs = memscope_scratch_take(
        &blocks->marks, (units * blocks->unit_bytes / (size_t)sysconf(_SC_PAGESIZE) + 1) * sizeof *blocks->slabs);
    return blocks->seen != NULL && blocks->slabs != NULL;
}

enum memscope_status memscope_malloc_blocks_open(struct memscope_malloc_blocks *blocks,
                                                 struct memscope_ledger *ledger) {
    enum memscope_allocator_name allocator = ledger->request->malloc;
    enum memscope_status status;

    memset(blocks, 0, sizeof *blocks);
    blocks->ledger = ledger;
    blocks->unit_bytes = allocator == MEMSCOPE_ALLOCATOR_GLIBC ? GLIBC_UNIT : JEMALLOC_UNIT;
    if (allocator != MEMSCOPE_ALLOCATOR_GLIBC && allocator != MEMSCOPE_ALLOCATOR_JEMALLOC)
        return MEMSCOPE_UNSUPPORTED;
    if (ledger->residency.range_count == 0)
        return ledger->residency.refusal == MEMSCOPE_OK ? MEMSCOPE_UNSUPPORTED : ledger->residency.refusal;
    if ((status = memscope_scratch_open(&blocks->list)) != MEMSCOPE_OK ||
        (status = memscope_scratch_open(&blocks->marks)) != MEMSCOPE_OK ||
        (status = memscope_scratch_open(&blocks->seen_memory)) != MEMSCOPE_OK)
        return status;
    if (allocator == MEMSCOPE_ALLOCATOR_JEMALLOC && !memscope_jemalloc_blocks_open(blocks))
        return MEMSCOPE_UNSUPPORTED;
    blocks->regions = memscope_scratch_take(&blocks->list, 0);
    if (blocks->regions == NULL || !find_regions(blocks) || !take_marks(blocks))
        return MEMSCOPE_NO_MEMORY;
    blocks->private_status = find_private(blocks);
    return MEMSCOPE_OK;
}

void memscope_malloc_blocks_inherit(struct memscope_malloc_blocks *blocks, struct memscope_ledger *ledger,
                                    int inherited) {
    struct memscope_scratch *const scratches[] = {&blocks->list, &blocks->marks, &blocks->seen_memory,
                                                  &ledger->work, &ledger->list,  &ledger->claim_memory};

    for (size_t index = 0; index < sizeof scratches / sizeof scratches[0]; index++)
        memscope_scratch_inherit(scratches[index], inherited);
}

void memscope_malloc_blocks_close(struct memscope_malloc_blocks *blocks) {
    memscope_scratches_close(&blocks->list, &blocks->marks, &blocks->seen_memory);
}

/* ---- counting -------------------------------------------------------------------------------------------------- */

/* The block's bytes as its row counts them: address space under jemalloc, resident bytes under glibc. */
static uint64_t bytes_of_row(const struct memscope_malloc_blocks *blocks, const struct memscope_malloc_region *region,
                             uintptr_t address, size_t bytes) {
    uintptr_t chunk = address - GLIBC_UNIT;

    if (region->row == MEMSCOPE_ROW_in_use)
        return bytes;
    return memscope_residency_between(&blocks->ledger->residency, chunk, chunk + bytes);
}

size_t memscope_malloc_blocks_add(struct memscope_malloc_blocks *blocks, uintptr_t address, bool garbage) {
    const struct memscope_malloc_region *region = memscope_malloc_region_at(blocks, address);
    bool glibc = blocks->ledger->request->malloc == MEMSCOPE_ALLOCATOR_GLIBC;
    size_t bytes, unit;

    if (region == NULL || address % blocks->unit_bytes != 0)
        return 0;
    unit = memscope_unit_at(blocks, region, address);
    if (memscope_bit(blocks->seen, unit))
        return 0;
    bytes = glibc ? memscope_glibc_block_bytes(region, address) : memscope_jemalloc_block_bytes(address);
    if (bytes == 0 || bytes > region->end - address + GLIBC_UNIT)
        return 0;
    memscope_set_bit(blocks->seen, unit);
    if (garbage)
        blocks->garbage[region->row] += bytes_of_row(blocks, region, address, bytes);
    if (!glibc)
        memscope_jemalloc_block_count(blocks, region, address, bytes, garbage);
    else if (garbage)
        memscope_set_bit(blocks->doomed, unit);
    return bytes;
}

bool memscope_malloc_blocks_prove(struct memscope_malloc_blocks *blocks, uintptr_t address) {
    return memscope_malloc_region_at(blocks, address) != NULL;
}

/* ---- pages that go back ------------------------------------------------------------------------------------------ */

void memscope_returned_add(const struct memscope_malloc_blocks *blocks, struct memscope_returned *returned,
                           uintptr_t start, uintptr_t end, bool certain) {
    uint64_t bytes = memscope_residency_between(&blocks->ledger->residency, start, end), own = 0;

    if (blocks->private_status == MEMSCOPE_OK)
        own = memscope_residency_between(&blocks->private_residency, start, end);
    returned->most += bytes;
    returned->private_most += own;
    returned->least += certain ? bytes : 0;
    returned->private_least += certain ? own : 0;
}

void memscope_resident_bytes(const struct memscope_malloc_blocks *blocks, uintptr_t start, uintptr_t end,
                             struct memscope_returned *bytes) {
    *bytes = (struct memscope_returned){0};
    memscope_returned_add(blocks, bytes, start, end, true);
}

enum memscope_status memscope_malloc_blocks_returned(struct memscope_malloc_blocks *blocks,
                                                     struct memscope_blocks_returned *returned) {
    memset(returned, 0, sizeof *returned);
    if (blocks->ledger->request->malloc == MEMSCOPE_ALLOCATOR_GLIBC)
        return memscope_glibc_blocks_returned(blocks, returned);
    return memscope_jemalloc_blocks_returned(blocks, returned);
}
