/*
 * Pieces of glibc's main arena outside the main heap. If the program break cannot be raised, for example because a
 * mapping is in its way, the main arena grows by anonymous mappings of 1 MiB or more (sysmalloc_mmap_fallback in
 * malloc/malloc.c).
 */
#pragma once

#include "base/own_memory.h"
#include "base/scratch.h"
#include "ledger/claims.h"
#include "ledger/glibc_regions.h"
#include "ledger/images.h"

/*
 * Claims the pieces, as MEMSCOPE_ROW_main_heap. Each claim's item is the number of pages of its piece. Searches the C
 * library's data until it has found the main arena, and caches its address. If the arena has more memory than the main
 * heap, follows chunks from every unclaimed resident page that may begin a piece: 0.15 to 0.3 µs per chunk. No GVL, no
 * allocation.
 */
void memscope_glibc_claim_pieces(const struct memscope_search *search, const struct memscope_images *images,
                                 struct memscope_scratch *scratch, struct memscope_glibc_regions *regions);

/*
 * Claims the mappings of the program break for `row` if the main arena's top is in one of them, and returns true if it
 * is. Reads as above.
 */
bool memscope_glibc_claim_main_heap(const struct memscope_search *search, const struct memscope_images *images,
                                    enum memscope_row row);

/* The address of main_arena's field `top`, which follows its fastbins, or 0 if it is not found. Reads as above. */
uintptr_t memscope_glibc_main_top(const struct memscope_own_memory *memory, const struct memscope_images *images);
