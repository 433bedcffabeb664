/*
 * Pieces of glibc's main arena outside of the main heap. Where the program break cannot rise, as with a mapping in its
 * way, the main arena goes on in mappings of its own, of 1 MiB and more (sysmalloc_mmap_fallback in malloc/malloc.c).
 */
#ifndef MEMSCOPE_GLIBC_PIECES_H
#define MEMSCOPE_GLIBC_PIECES_H

#include "base/own_memory.h"
#include "base/scratch.h"
#include "kernel/mappings.h"
#include "kernel/residency.h"
#include "ledger/claims.h"
#include "ledger/glibc_regions.h"
#include "ledger/images.h"

/*
 * Claims the pieces, as MEMSCOPE_ROW_main_heap; each claim's item is the number of pages of its piece. Reads one word
 * of each page of the C library's data to find the main arena, once in a process. If the arena has more memory than the
 * main heap, looks in unclaimed memory for chains of chunks that end like a piece: 0.15 to 0.3 µs a chunk. No GVL, no
 * allocation.
 */
void memscope_glibc_claim_pieces(const struct memscope_mappings *mappings, const struct memscope_residency *residency,
                                 const struct memscope_own_memory *memory, const struct memscope_images *images,
                                 struct memscope_scratch *scratch, struct memscope_claims *claims,
                                 struct memscope_glibc_regions *regions);

#endif
