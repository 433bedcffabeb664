/*
 * The real size of malloc blocks with a known owner, and the memory that the process returns once the garbage among
 * them is freed.
 *
 * An address is read only inside memory that the ledger has proven to be the allocator's. Sizes are the allocator's
 * own: glibc's chunk header, jemalloc's size class. Once the blocks are open, no lock is taken and malloc is never
 * called, so all later calls work in a forked child.
 */
#pragma once

#include "ledger/ledger.h"
#include "malloc/jemalloc_keys.h"

struct memscope_malloc_region {
    uintptr_t start, end;  /* must come first, as a memscope_range */
    size_t first_unit;     /* index of its first unit among the units of all regions */
    enum memscope_row row; /* of its blocks in use (a mmapped_in_use region is one chunk of glibc) */
};

/* One of jemalloc's small size classes: regions of region_bytes share a slab. */
struct memscope_slab_class {
    uint32_t region_bytes, slab_bytes, regions;
};
#define MEMSCOPE_SLAB_CLASSES 64

/* The known use of the slab that begins at a page. */
struct memscope_slab {
    uint16_t owned, garbage; /* regions in use by live and by garbage owners */
    uint8_t slab_class;
};

/* Resident bytes, between a proven lower bound and an upper bound. */
struct memscope_returned {
    uint64_t least, most;
    uint64_t private_least, private_most; /* on pages that no other process maps */
};

struct memscope_malloc_blocks {
    const struct memscope_ledger *ledger;
    uint64_t garbage[MEMSCOPE_ROW_COUNT]; /* bytes of garbage, as memscope_ledger_split_garbage takes them */

    /* internals */
    struct memscope_malloc_region *regions;
    size_t region_count, last;
    size_t unit_bytes;           /* alignment of every block */
    uint64_t *seen, *doomed;     /* one bit per unit: a block begins here, and is garbage (glibc only, else NULL) */
    struct memscope_slab *slabs; /* one per page, NULL for glibc */
    struct memscope_slab_class classes[MEMSCOPE_SLAB_CLASSES];
    size_t class_count;
    struct memscope_mib batch_query;             /* the fill of a slab, length 0 if this jemalloc cannot report it */
    struct memscope_returned doomed_runs;        /* jemalloc: the extents of large garbage */
    struct memscope_residency private_residency; /* resident pages that no other process maps */
    enum memscope_status private_status;
    struct memscope_scratch list, marks, seen_memory;
};

/*
 * Prepares for the blocks of the ledger's allocator. Returns MEMSCOPE_UNSUPPORTED unless it is glibc or jemalloc and
 * per-page residency is known. The ledger must stay open as long as the blocks. Finding the pages that other processes
 * map too takes 4 ms per resident GB, and must be done before a fork, since a child shares all memory with its parent.
 * No GVL needed. Always close it.
 */
enum memscope_status memscope_malloc_blocks_open(struct memscope_malloc_blocks *blocks, struct memscope_ledger *ledger);
void memscope_malloc_blocks_close(struct memscope_malloc_blocks *blocks);

/* Lets children forked from now on inherit the blocks' memory and the ledger's, or not. */
void memscope_malloc_blocks_inherit(struct memscope_malloc_blocks *blocks, struct memscope_ledger *ledger,
                                    int inherited);

/*
 * Counts the block that begins at address, the first time only. Returns the bytes that malloc uses for it, 0 if it was
 * counted before, or if no block is known to begin there. The address must be one that malloc returned and that is
 * still in use, since jemalloc does not check.
 */
size_t memscope_malloc_blocks_add(struct memscope_malloc_blocks *blocks, uintptr_t address, bool garbage);

/* Returns true if the address is in memory that the ledger has proven to be the allocator's. */
bool memscope_malloc_blocks_prove(struct memscope_malloc_blocks *blocks, uintptr_t address);

/* Sets both bounds to the resident bytes of [start, end), which is page-aligned. */
void memscope_resident_bytes(const struct memscope_malloc_blocks *blocks, uintptr_t start, uintptr_t end,
                             struct memscope_returned *bytes);

/*
 * The resident pages that the process gives back when the garbage added so far is freed, and then malloc_trim is called
 * (glibc) or thread caches are flushed and all arenas purged (jemalloc): pages that the garbage takes, and pages that
 * are free today. 0.3 to 0.6 µs for each chunk of glibc's heaps, 0.2 µs for each slab with garbage.
 */
struct memscope_blocks_returned {
    struct memscope_returned by_trim; /* by the GC and then the trim or purge together */
    struct memscope_returned today;   /* by the trim or purge without the GC */
    struct memscope_returned at_once; /* part of by_trim that goes back as soon as the garbage is freed */
    uint64_t in_use_bytes;            /* address space of glibc's blocks in use, 0 for jemalloc, which reports it */
};

enum memscope_status memscope_malloc_blocks_returned(struct memscope_malloc_blocks *blocks,
                                                     struct memscope_blocks_returned *returned);
