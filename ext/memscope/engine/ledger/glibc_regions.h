/*
 * Finds the memory of glibc's malloc. glibc reports only totals (mallinfo2, which walks every free list under the arena
 * locks), but each kind of region can be recognised: the main heap ends at the program break, the heaps of other arenas
 * are aligned and begin with a heap_info, and a chunk with a mapping of its own begins with a chunk header.
 *
 * Layouts: malloc/arena.c (heap_info) and malloc/malloc.c (malloc_chunk, IS_MMAPPED), unchanged from 2.26 to 2.43
 * except as noted in the code.
 */
#pragma once

#include "ledger/claims.h"

/* struct heap_info, at the start of every heap of an arena other than the main one. 2.35 appended fields. */
struct memscope_glibc_heap_info {
    uintptr_t arena; /* struct malloc_state, in the arena's first heap */
    uintptr_t previous;
    size_t size;
    size_t mprotect_size;
};

struct memscope_glibc_regions {
    uint64_t arena_heap_count; /* heaps of arenas other than the main one, one or more per arena */
    uint64_t arena_count;      /* arenas that these heaps belong to */
    uint64_t main_piece_count; /* of the main arena, outside of the main heap */
    uint64_t mmapped_chunk_count;
    uint64_t mmapped_bytes; /* address space of these chunks, as mallinfo2's hblkhd counts them */
};

/*
 * Claims the heaps of the arenas for `row`. The main heap needs no claim where glibc serves malloc, because the kernel
 * names its mapping. Without a residency (NULL), queries the kernel for the residency of each possible heap's first
 * page. No GVL, no allocation.
 */
void memscope_glibc_claim_arenas(const struct memscope_search *search, enum memscope_row row,
                                 struct memscope_glibc_regions *regions);

/*
 * Claims mmapped chunks for `row` in unclaimed memory that is not jemalloc's. Call it after owners with stronger proof
 * have claimed their memory.
 */
void memscope_glibc_claim_mmapped(const struct memscope_search *search, enum memscope_row row,
                                  struct memscope_glibc_regions *regions);
