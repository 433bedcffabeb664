#include "ledger/glibc_regions.h"

#include "ledger/glibc_layout.h"

/* HEAP_MAX_SIZE on 64-bit: 2 * DEFAULT_MMAP_THRESHOLD_MAX */
#define ARENA_HEAP_BYTES ((uintptr_t)(sizeof(long) == 8 ? 64 << 20 : 1 << 20))

/* The first two words of struct malloc_chunk. In an mmapped chunk, IS_MMAPPED is the only flag that is set in size. */
struct chunk_header {
    size_t previous_size;
    size_t size;
};

#define HEADER_BATCH 256

/*
 * The maximum end of an arena's heap at this address: over adjacent anonymous mappings, up to the end of the heap's
 * reservation. A heap may consist of several mappings, and a thread may have grown it since the mappings were read.
 */
static uintptr_t reach_of_heap(const struct memscope_mappings *mappings, size_t index, uintptr_t address) {
    uintptr_t reach = mappings->list[index].end;

    while (reach < address + ARENA_HEAP_BYTES && ++index < mappings->count && mappings->list[index].start == reach &&
           memscope_mapping_is_anonymous(&mappings->list[index]))
        reach = mappings->list[index].end;
    return reach;
}

/*
 * The first heap of an arena holds the arena itself, right after the heap_info. Each later heap points back to an
 * earlier heap of the same arena.
 */
static bool is_arena_heap(const struct memscope_own_memory *memory, uintptr_t address, uintptr_t reach,
                          const struct memscope_glibc_heap_info *info) {
    size_t page = memscope_page_bytes();
    struct memscope_glibc_heap_info previous;

    if (info->size == 0 || info->size % page != 0 || info->mprotect_size % page != 0 ||
        info->mprotect_size < info->size || info->mprotect_size > ARENA_HEAP_BYTES ||
        info->mprotect_size > reach - address || info->arena % 16 != 0)
        return false;
    if (info->previous == 0)
        return info->arena >= address + sizeof *info && info->arena < address + 256;
    return info->previous % ARENA_HEAP_BYTES == 0 && info->previous != address &&
           memscope_own_memory_read(memory, info->previous, &previous, sizeof previous) &&
           previous.arena == info->arena;
}

/* Returns true if the page may be resident. */
static bool may_hold_header(const struct memscope_residency *residency, uintptr_t address, size_t page) {
    if (residency == NULL)
        return memscope_is_resident_by_now(address);
    return residency->source == MEMSCOPE_RESIDENCY_SMAPS ||
           memscope_residency_between(residency, address, address + page) > 0;
}

void memscope_glibc_claim_arenas(const struct memscope_search *search, enum memscope_row row,
                                 struct memscope_glibc_regions *regions) {
    size_t page = memscope_page_bytes();

    for (size_t index = 0; index < search->mappings->count; index++) {
        const struct memscope_mapping *mapping = &search->mappings->list[index];
        uintptr_t address = (mapping->start + ARENA_HEAP_BYTES - 1) & -ARENA_HEAP_BYTES;

        if (!memscope_search_is_worth(search, mapping))
            continue;
        for (; address >= mapping->start && address + page <= mapping->end; address += ARENA_HEAP_BYTES) {
            struct memscope_glibc_heap_info info;

            if (!may_hold_header(search->residency, address, page))
                continue;
            if (!memscope_own_memory_read(search->memory, address, &info, sizeof info) ||
                !is_arena_heap(search->memory, address, reach_of_heap(search->mappings, index, address), &info))
                continue;
            memscope_claims_add(search->claims, address, address + info.mprotect_size, row, 0);
            regions->arena_heap_count++;
            regions->arena_count += info.previous == 0;
        }
    }
}

/* The chunk's size if `header` can begin an mmapped chunk in `room` bytes, else 0. */
static size_t mmapped_chunk_size(const struct chunk_header *header, size_t room) {
    size_t page = memscope_page_bytes(), size = header->size & ~SIZE_FLAGS;

    if (header->previous_size != 0 || (header->size & SIZE_FLAGS) != IS_MMAPPED)
        return 0;
    if ((size + sizeof *header) % page == 0) /* 2.43 stores the size without the header */
        size += sizeof *header;
    return size >= page && size % page == 0 && size <= room ? size : 0;
}

struct gap_walk {
    const struct memscope_search *search;
    enum memscope_row row;
    struct memscope_glibc_regions *regions;
    uintptr_t next; /* pages below this belong to the chunk found last */
    uintptr_t end;
    uintptr_t reach; /* end of the gap if realloc has grown its last chunk since the mappings were read (mremap) */
};

/* The maximum end by now of a chunk in a gap of this mapping: the next mapping, or the claim that ends the gap. */
static uintptr_t reach_of_gap(const struct memscope_mappings *mappings, size_t index, uintptr_t end) {
    if (end < mappings->list[index].end)
        return end;
    return index + 1 < mappings->count ? mappings->list[index + 1].start : end;
}

static void claim_chunk_at(struct gap_walk *walk, uintptr_t address, const struct chunk_header *header) {
    size_t size = address < walk->next ? 0 : mmapped_chunk_size(header, walk->reach - address);

    if (size == 0 || (size > walk->end - address && !memscope_is_mapped_by_now(address + size - 1)))
        return;
    memscope_claims_add(walk->search->claims, address, address + size, walk->row, 0);
    walk->regions->mmapped_chunk_count++;
    walk->regions->mmapped_bytes += size;
    walk->next = address + size;
}

/* Reads the first words of every resident page in [start, end) that no chunk found so far covers. */
static void walk_resident_pages(struct gap_walk *walk, uintptr_t start, uintptr_t end) {
    uintptr_t addresses[HEADER_BATCH];
    struct chunk_header headers[HEADER_BATCH];
    size_t page = memscope_page_bytes(), wanted = 1;

    while (start < end) {
        size_t count = 0;

        if (start < walk->next)
            start = walk->next;
        for (; count < wanted && start < end; start += page)
            addresses[count++] = start;
        memscope_own_memory_read_each(walk->search->memory, addresses, count, sizeof headers[0], headers);
        for (size_t index = 0; index < count; index++)
            claim_chunk_at(walk, addresses[index], &headers[index]);
        /* Chunks tend to be adjacent, so the page right after a chunk is likely to begin another. */
        wanted = walk->next >= start ? 1 : HEADER_BATCH;
    }
}

void memscope_glibc_claim_mmapped(const struct memscope_search *search, enum memscope_row row,
                                  struct memscope_glibc_regions *regions) {
    struct gap_walk walk = {.search = search, .row = row, .regions = regions};
    struct memscope_gap gap = {0};

    while (memscope_search_next_gap(search, &gap)) {
        uintptr_t start = gap.start;
        struct memscope_range part;

        walk.next = start;
        walk.end = gap.end;
        walk.reach = reach_of_gap(search->mappings, gap.mapping, gap.end);
        while (memscope_residency_next(search->residency, &start, gap.end, &part))
            walk_resident_pages(&walk, part.start, part.end);
    }
}
