#include "ledger/ruby_regions.h"

#include <string.h>

/* Words read of struct heap_page: enough for both fields of descriptor_shape in 3.1 to 4.1dev (gc.c, gc/default.c). */
#define DESCRIPTOR_WORDS 16
#define SAMPLE_PAGES 64
/*
 * The header at the start of a heap page begins with a pointer to the page's descriptor. The first slot begins less
 * than this many bytes after the start of the page.
 */
#define HEADER_LIMIT 1024
#define SLOT_MIN 40 /* bytes of the smallest slot up to 3.3 */
#define BLOCK_BATCH 256

void memscope_ruby_claim_heap_pages(const struct memscope_ruby_layout *layout, struct memscope_claims *claims) {
    for (size_t index = 0; index < layout->heap_page_count; index++) {
        uintptr_t start = layout->heap_pages[index].start;

        memscope_claims_add(claims, start, start + layout->heap_page_bytes, MEMSCOPE_CLAIM_HEAP_PAGE, (uint32_t)index);
    }
}

/* Words of a page's descriptor that point back to the page, learnt from known pages. -1 if none does. */
struct descriptor_shape {
    int first_slot; /* address of the page's first slot (Ruby 3.3 and older keep it when the page is empty) */
    int page;       /* address of the page itself (Ruby 3.4 and newer) */
};

static bool read_descriptor(const struct memscope_own_memory *memory, uintptr_t page, uintptr_t *words) {
    uintptr_t descriptor;

    return memscope_own_memory_read(memory, page, &descriptor, sizeof descriptor) && descriptor != 0 &&
           descriptor % sizeof descriptor == 0 &&
           memscope_own_memory_read(memory, descriptor, words, DESCRIPTOR_WORDS * sizeof *words);
}

/* Returns true for a possible address of a page's first slot, which is known exactly only for listed pages. */
static bool may_be_first_slot(const struct memscope_heap_page *page, uintptr_t word) {
    return page->slots_offset > 0 ? word == page->start + page->slots_offset
                                  : word > page->start && word < page->start + HEADER_LIMIT;
}

static struct descriptor_shape learn_from(const struct memscope_heap_page *pages, size_t count,
                                          const struct memscope_own_memory *memory) {
    uint32_t holds_slot = (1u << DESCRIPTOR_WORDS) - 1, holds_page = holds_slot;
    struct descriptor_shape shape = {-1, -1};

    for (size_t index = 0; index < count; index++) {
        uintptr_t words[DESCRIPTOR_WORDS];

        if (!read_descriptor(memory, pages[index].start, words))
            return shape;
        for (int word = 0; word < DESCRIPTOR_WORDS; word++) {
            if (!may_be_first_slot(&pages[index], words[word]))
                holds_slot &= ~(1u << word);
            if (words[word] != pages[index].start)
                holds_page &= ~(1u << word);
        }
    }
    for (int word = DESCRIPTOR_WORDS - 1; count > 0 && word >= 0; word--) {
        if (holds_slot >> word & 1)
            shape.first_slot = word;
        if (holds_page >> word & 1)
            shape.page = word;
    }
    return shape;
}

static struct descriptor_shape learn_descriptor(const struct memscope_ruby_layout *layout,
                                                const struct memscope_own_memory *memory) {
    size_t samples = layout->heap_page_count < SAMPLE_PAGES ? layout->heap_page_count : SAMPLE_PAGES;
    struct memscope_heap_page landmarks[MEMSCOPE_LANDMARKS] = {0};

    if (samples > 0)
        return learn_from(layout->heap_pages, samples, memory);
    for (size_t index = 0; index < MEMSCOPE_LANDMARKS; index++)
        landmarks[index].start = layout->landmarks[index];
    return learn_from(landmarks, MEMSCOPE_LANDMARKS, memory);
}

static bool is_heap_page(const struct memscope_ruby_layout *layout, const struct memscope_own_memory *memory,
                         struct descriptor_shape shape, uintptr_t page) {
    uintptr_t words[DESCRIPTOR_WORDS];
    uint16_t sizes[2]; /* slot_size and total_slots, the first fields of the descriptor up to 3.3 */
    uintptr_t end;

    if (!read_descriptor(memory, page, words))
        return false;
    if (shape.page >= 0)
        return words[shape.page] == page;
    if (shape.first_slot < 0 || words[shape.first_slot] <= page || words[shape.first_slot] >= page + HEADER_LIMIT)
        return false;
    memcpy(sizes, words, sizeof sizes);
    end = words[shape.first_slot] + (size_t)sizes[0] * sizes[1]; /* less than two slots' room follows in the page */
    return sizes[0] >= SLOT_MIN && end <= page + layout->heap_page_bytes &&
           page + layout->heap_page_bytes - end < 2 * (size_t)sizes[0];
}

static void claim_pages_in(const struct memscope_ruby_layout *layout, const struct memscope_search *search,
                           struct descriptor_shape shape, struct memscope_gap gap,
                           struct memscope_ruby_regions *regions) {
    bool listed = layout->heap_page_count > 0;
    size_t bytes = layout->heap_page_bytes;
    struct memscope_range part;

    while (memscope_residency_next(search->residency, &gap.start, gap.end, &part)) {
        uintptr_t page = (part.start + bytes - 1) / bytes * bytes;

        for (; page >= part.start && page < part.end && gap.end - page >= bytes; page += bytes) {
            if (!is_heap_page(layout, search->memory, shape, page))
                continue;
            memscope_claims_add(search->claims, page, page + bytes,
                                listed ? MEMSCOPE_ROW_empty_pages : MEMSCOPE_ROW_whole_pages, 0);
            regions->empty_pages_found += listed;
            regions->whole_pages_found += !listed;
        }
    }
}

void memscope_ruby_claim_unlisted_pages(const struct memscope_ruby_layout *layout, const struct memscope_search *search,
                                        struct memscope_ruby_regions *regions) {
    struct descriptor_shape shape;
    struct memscope_gap gap = {0};

    if (layout->heap_page_bytes == 0 || (layout->heap_page_count > 0 && layout->empty_page_count == 0))
        return;
    shape = learn_descriptor(layout, search->memory);
    if (shape.first_slot < 0 && shape.page < 0)
        return;
    while (memscope_search_next_gap(search, &gap))
        claim_pages_in(layout, search, shape, gap, regions);
}

/* struct transient_heap_block's header up to Ruby 3.2 (transient_heap.c): four 16-bit counts, then next_block. */
struct transient_block {
    uint16_t counts[4];
    uintptr_t next;
};

static bool links_inside(const struct transient_block *block, uintptr_t arena,
                         const struct memscope_ruby_layout *layout) {
    return block->next >= arena && block->next < arena + layout->transient_heap_bytes &&
           (block->next - arena) % layout->transient_block_bytes == 0;
}

/* Every block of the arena ends a list or links to another block of the arena, and most link. */
static bool is_transient_heap(const struct memscope_ruby_layout *layout, const struct memscope_own_memory *memory,
                              uintptr_t arena) {
    size_t blocks = layout->transient_heap_bytes / layout->transient_block_bytes, links = 0;
    struct transient_block block;

    for (size_t index = 0; index < blocks; index++) {
        if (!memscope_own_memory_read(memory, arena + index * layout->transient_block_bytes, &block, sizeof block))
            return false;
        if (links_inside(&block, arena, layout))
            links++;
        else if (block.next != 0)
            return false;
    }
    return links > blocks / 2;
}

/* The index of the first block that may be the arena's first or second, `count` if there is none. */
static size_t first_block(const struct memscope_ruby_layout *layout, const uintptr_t *addresses,
                          const struct transient_block *blocks, size_t count) {
    size_t index = 0;

    while (index < count && !links_inside(&blocks[index], addresses[index], layout) &&
           !links_inside(&blocks[index], addresses[index] - layout->transient_block_bytes, layout))
        index++;
    return index;
}

/*
 * Lists link in either direction, and one of the arena's first two blocks may end a list, so each block is tried as the
 * first and as the second. Reads the header of every aligned block in `part`, which is resident and ends with the last
 * possible second block.
 */
static bool claim_transient_heap(const struct memscope_ruby_layout *layout, const struct memscope_search *search,
                                 struct memscope_range part) {
    uintptr_t step = layout->transient_block_bytes, block = (part.start + step - 1) / step * step;
    uintptr_t addresses[BLOCK_BATCH];
    struct transient_block blocks[BLOCK_BATCH];

    while (block >= part.start && block < part.end) {
        size_t count = 0, index = 0;

        for (; count < BLOCK_BATCH && block < part.end; block += step)
            addresses[count++] = block;
        memscope_own_memory_read_each(search->memory, addresses, count, sizeof blocks[0], blocks);
        while ((index += first_block(layout, addresses + index, blocks + index, count - index)) < count) {
            uintptr_t arena = addresses[index++];

            if (!is_transient_heap(layout, search->memory, arena) &&
                !is_transient_heap(layout, search->memory, arena -= step))
                continue;
            memscope_claims_add(search->claims, arena, arena + layout->transient_heap_bytes,
                                MEMSCOPE_ROW_transient_heap, 0);
            return true;
        }
    }
    return false;
}

static bool find_transient_heap(const struct memscope_ruby_layout *layout, const struct memscope_search *search,
                                struct memscope_gap gap) {
    struct memscope_range part;

    if (gap.end - gap.start < layout->transient_heap_bytes)
        return false;
    gap.end = gap.end - layout->transient_heap_bytes + 2 * layout->transient_block_bytes;
    while (memscope_residency_next(search->residency, &gap.start, gap.end, &part))
        if (claim_transient_heap(layout, search, part))
            return true;
    return false;
}

/* Finds the unclaimed range around an address in a data mapping. Returns false for any other address. */
static bool gap_around(const struct memscope_search *search, uintptr_t address, uintptr_t *start, uintptr_t *end) {
    const struct memscope_mapping *mapping = memscope_mappings_find(search->mappings, address);
    uintptr_t cursor;

    if (mapping == NULL || !memscope_mapping_is_data(mapping))
        return false;
    cursor = mapping->start;
    while (memscope_claims_next_gap(search->claims, &cursor, mapping->end, start, end))
        if (address < *end)
            return address >= *start;
    return false;
}

/*
 * Claims both tables if the cache begins at this address, as its first node shows: a key, then the address of a shape
 * in the list, with flags in the lowest bits (shape.h, redblack_node_t). If the list's address is unknown, it is found
 * from that shape. The list must then fill exactly the rest of the gap that begins with the cache, or the whole of
 * another gap.
 */
static bool claim_shape_cache(const struct memscope_ruby_layout *layout, const struct memscope_search *search,
                              uintptr_t cache) {
    uintptr_t node[2], shape, start, end, list = layout->shape_list;

    if (!memscope_own_memory_read(search->memory, cache, node, sizeof node))
        return false;
    shape = node[1] & ~(uintptr_t)7;
    if (list == 0) {
        if (!gap_around(search, shape, &start, &end) || end - start < layout->shape_list_bytes)
            return false;
        list = end - layout->shape_list_bytes;
        if (list != start && (start != cache || list != cache + layout->shape_cache_bytes))
            return false;
    }
    if (shape < list || shape - list >= layout->shape_list_bytes)
        return false;
    memscope_claims_add(search->claims, list, list + layout->shape_list_bytes, MEMSCOPE_ROW_shape_tables, 0);
    memscope_claims_add(search->claims, cache, cache + layout->shape_cache_bytes, MEMSCOPE_ROW_shape_tables, 0);
    return true;
}

/*
 * The kernel merges adjacent mappings unless they are named, so the tables may share a mapping with heap pages or with
 * each other. Therefore every gap between claims that is exactly as large as the cache, or as both tables, is tried.
 */
static void claim_shape_tables(const struct memscope_ruby_layout *layout, const struct memscope_search *search) {
    uintptr_t list = layout->shape_list, start, end;
    struct memscope_gap gap = {0};

    if (list != 0 && gap_around(search, list, &start, &end))
        memscope_claims_add(search->claims, list, list + layout->shape_list_bytes, MEMSCOPE_ROW_shape_tables, 0);
    if (layout->shape_cache_bytes == 0 ||
        (list != 0 && claim_shape_cache(layout, search, list - layout->shape_cache_bytes)))
        return;
    while (memscope_search_next_gap(search, &gap))
        if ((gap.end - gap.start == layout->shape_cache_bytes ||
             gap.end - gap.start == layout->shape_cache_bytes + layout->shape_list_bytes) &&
            claim_shape_cache(layout, search, gap.start))
            return;
}

/* The transient heap is usually a mapping of its own. In any other mapping, normally at most two blocks are read. */
static bool is_transient_heap_mapping(const struct memscope_ruby_layout *layout,
                                      const struct memscope_own_memory *memory,
                                      const struct memscope_mapping *mapping) {
    uintptr_t addresses[] = {mapping->start, mapping->start + layout->transient_block_bytes};
    struct transient_block blocks[2];

    if (layout->transient_heap_bytes == 0 || mapping->end - mapping->start != layout->transient_heap_bytes)
        return false;
    memscope_own_memory_read_each(memory, addresses, 2, sizeof blocks[0], blocks);
    return first_block(layout, addresses, blocks, 2) < 2 && is_transient_heap(layout, memory, mapping->start);
}

void memscope_ruby_claim_known_internals(const struct memscope_ruby_layout *layout,
                                         const struct memscope_search *search, struct memscope_ruby_regions *regions) {
    claim_shape_tables(layout, search);
    for (size_t index = 0; index < search->mappings->count; index++) {
        const struct memscope_mapping *mapping = &search->mappings->list[index];

        if (regions->transient_heap_found || !memscope_mapping_is_data(mapping) ||
            !is_transient_heap_mapping(layout, search->memory, mapping))
            continue;
        memscope_claims_add(search->claims, mapping->start, mapping->end, MEMSCOPE_ROW_transient_heap, 0);
        regions->transient_heap_found = true;
    }
}

void memscope_ruby_claim_transient_heap(const struct memscope_ruby_layout *layout, const struct memscope_search *search,
                                        struct memscope_ruby_regions *regions) {
    struct memscope_gap gap = {0};

    while (layout->transient_heap_bytes > 0 && !regions->transient_heap_found && memscope_search_next_gap(search, &gap))
        regions->transient_heap_found = find_transient_heap(layout, search, gap);
}
