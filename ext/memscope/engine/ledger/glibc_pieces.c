#include "ledger/glibc_pieces.h"

#include "ledger/glibc_chunks.h"
#include "ledger/glibc_layout.h"

#include <stdatomic.h>

/*
 * struct malloc_state from its last bin on (2.26 to 2.43). No chunk is ever put in that bin, so both of its words point
 * to the bin itself as if it were a chunk: to the address two words, the size of a chunk header, before the bin.
 */
struct arena_tail {
    uintptr_t last_bin[2];
    unsigned binmap[4];
    uintptr_t next, next_free;
    size_t attached_threads, system_bytes, max_system_bytes;
};
#define LAST_BIN_AFTER_TOP ((size_t)254 * WORD) /* top, last_remainder, then the 126 bins before the last one */

/* Two fields of main_arena. */
struct main_arena {
    uintptr_t top, top_address;
    uint64_t system_bytes; /* of the main heap and the pieces together */
};

/*
 * Every empty bin points to itself, so the fields after the bin must also be plausible, and top must point to a chunk.
 */
static bool read_main_arena(const struct memscope_own_memory *memory, uintptr_t last_bin, struct main_arena *arena) {
    struct arena_tail tail;
    uintptr_t size;

    arena->top_address = last_bin - LAST_BIN_AFTER_TOP;
    if (!memscope_own_memory_read(memory, last_bin, &tail, sizeof tail) ||
        !memscope_own_memory_read(memory, arena->top_address, &arena->top, sizeof arena->top) ||
        !memscope_own_memory_read(memory, arena->top + WORD, &size, sizeof size))
        return false;
    arena->system_bytes = tail.system_bytes;
    return tail.last_bin[0] == last_bin - ALIGNMENT && tail.last_bin[1] == last_bin - ALIGNMENT && tail.next != 0 &&
           tail.system_bytes > 0 && tail.system_bytes % memscope_page_bytes() == 0 &&
           tail.system_bytes <= tail.max_system_bytes && arena->top % ALIGNMENT == 0 &&
           (size & SIZE_FLAGS) == PREVIOUS_IN_USE && (size & ~SIZE_FLAGS) <= tail.system_bytes;
}

/* Searches the C library's data for the last bin, and caches its address, which is the same in forked children. */
static bool find_main_arena(const struct memscope_own_memory *memory, const struct memscope_images *images,
                            struct main_arena *arena) {
    static _Atomic(uintptr_t) found;
    uintptr_t words[512], known = atomic_load(&found);

    if (known != 0)
        return read_main_arena(memory, known, arena);
    for (uintptr_t at = images->c_library_data_start; at + sizeof words <= images->c_library_data_end;
         at += sizeof words - WORD) {
        if (!memscope_own_memory_read(memory, at, words, sizeof words))
            continue;
        for (size_t word = 0; word + 1 < sizeof words / WORD; word++) {
            uintptr_t address = at + word * WORD;

            if (words[word] != address - ALIGNMENT || words[word + 1] != words[word] ||
                !read_main_arena(memory, address, arena))
                continue;
            atomic_store(&found, address);
            return true;
        }
    }
    return false;
}

uintptr_t memscope_glibc_main_top(const struct memscope_own_memory *memory, const struct memscope_images *images) {
    struct main_arena arena;

    return find_main_arena(memory, images, &arena) ? arena.top_address : 0;
}

bool memscope_glibc_claim_main_heap(const struct memscope_search *search, const struct memscope_images *images,
                                    enum memscope_row row) {
    const struct memscope_mappings *mappings = search->mappings;
    size_t first = 0;
    struct main_arena arena;
    const struct memscope_mapping *of_top;

    while (first < mappings->count && !memscope_mapping_is_program_break(&mappings->list[first]))
        first++;
    if (first == mappings->count || !find_main_arena(search->memory, images, &arena))
        return false;
    of_top = memscope_mappings_find(mappings, arena.top);
    if (of_top == NULL || !memscope_mapping_is_program_break(of_top))
        return false;
    for (size_t index = first; index < mappings->count; index++)
        if (memscope_mapping_is_program_break(&mappings->list[index]))
            memscope_claims_add(search->claims, mappings->list[index].start, mappings->list[index].end, row, 0);
    return true;
}

static bool has_pieces(const struct memscope_mappings *mappings, const struct main_arena *arena) {
    uint64_t heap_bytes = 0;
    bool holds_top = false;

    for (size_t index = 0; index < mappings->count; index++) {
        const struct memscope_mapping *mapping = &mappings->list[index];

        if (!memscope_mapping_is_program_break(mapping))
            continue;
        heap_bytes += mapping->end - mapping->start;
        holds_top |= arena->top >= mapping->start && arena->top < mapping->end;
    }
    return !holds_top || arena->system_bytes > heap_bytes;
}

/*
 * Returns true if the 16-byte chunk at `chunk` is the first of the two fenceposts that sysmalloc leaves at the end of a
 * piece when it begins another piece. sysmalloc may leave 16 bytes more before them, too few for a chunk.
 */
static bool is_first_fencepost(struct memscope_chunk_walk *walk, uintptr_t chunk) {
    uintptr_t header;

    return (chunk + 2 * ALIGNMENT) % memscope_page_bytes() == 0 &&
           memscope_chunk_walk_word(walk, chunk + ALIGNMENT + WORD, &header) && (header & ~SIZE_FLAGS) == ALIGNMENT;
}

/*
 * The end of the piece that begins at start, 0 if none begins there. The chunks of a piece follow one another from the
 * start of a page to the arena's top or to the fenceposts, which end at a page boundary.
 */
static uintptr_t piece_end(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t limit, uintptr_t top) {
    uintptr_t chunk = start, page = memscope_page_bytes(), header, size;

    if (!memscope_chunk_walk_word(walk, start, &header) || header != 0 ||
        !memscope_chunk_walk_word(walk, start + WORD, &header) || (header & SIZE_FLAGS) != PREVIOUS_IN_USE)
        return 0;
    for (; memscope_chunk_walk_word(walk, chunk + WORD, &header); chunk += size) {
        size = header & ~SIZE_FLAGS;
        if ((header & SIZE_FLAGS) > PREVIOUS_IN_USE || size % ALIGNMENT != 0 || size > limit - chunk)
            return 0;
        if (chunk == top)
            return (chunk + size) % page == 0 ? chunk + size : 0;
        if (size == ALIGNMENT && is_first_fencepost(walk, chunk))
            return chunk + 2 * ALIGNMENT;
        if (size == limit - chunk || (size < MIN_CHUNK && (size == 0 || (chunk + 3 * ALIGNMENT) % page != 0)))
            return 0;
    }
    return 0;
}

struct piece_search {
    struct memscope_chunk_walk walk;
    struct memscope_claims *claims;
    struct memscope_glibc_regions *regions;
    uintptr_t top;
    uintptr_t next; /* pages below this belong to the piece found last */
};

static void claim_pieces_in(struct piece_search *search, const struct memscope_mapping *mapping, uintptr_t start,
                            uintptr_t end) {
    uintptr_t page = memscope_page_bytes();

    for (uintptr_t at = (start + page - 1) & -page; at < end; at += page) {
        uintptr_t piece = at < search->next ? 0 : piece_end(&search->walk, at, mapping->end, search->top);

        if (piece == 0)
            continue;
        memscope_claims_add(search->claims, at, piece, MEMSCOPE_ROW_main_heap, (uint32_t)((piece - at) / page));
        search->regions->main_piece_count++;
        search->next = piece;
    }
}

void memscope_glibc_claim_pieces(const struct memscope_search *search, const struct memscope_images *images,
                                 struct memscope_scratch *scratch, struct memscope_glibc_regions *regions) {
    struct piece_search pieces = {.claims = search->claims, .regions = regions};
    struct memscope_gap gap = {0};
    struct memscope_range part;
    struct main_arena arena;

    if (search->residency->range_count == 0 || !find_main_arena(search->memory, images, &arena) ||
        !has_pieces(search->mappings, &arena) ||
        !memscope_chunk_walk_open(&pieces.walk, search->memory, search->residency, scratch))
        return;
    pieces.top = arena.top;
    while (memscope_search_next_gap(search, &gap))
        while (memscope_residency_next(search->residency, &gap.start, gap.end, &part))
            claim_pieces_in(&pieces, &search->mappings->list[gap.mapping], part.start, part.end);
}
