/*
 * Blocks of the allocator's memory that are known to have an owner: how large each really is, and what the process
 * gives back once those of them that are garbage are freed.
 *
 * An address is looked at only inside memory that the ledger has proven the allocator's. Sizes are the allocator's own:
 * glibc's chunk header, jemalloc's size class. No lock is taken and malloc is never called, so all of it works in a
 * forked child.
 */
#ifndef MEMSCOPE_MALLOC_BLOCKS_H
#define MEMSCOPE_MALLOC_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ledger/ledger.h"
#include "malloc/jemalloc_keys.h"

struct memscope_malloc_region {
    uintptr_t start, end; /* first: a memscope_range */
    size_t first_unit;    /* the number of its first unit among those of all regions */
    bool is_chunk;        /* one chunk of glibc's with a mapping of its own */
};

/* One of jemalloc's size classes below a page run of its own: regions of these bytes share a slab. */
struct memscope_slab_class {
    uint32_t region_bytes, slab_bytes, regions;
};
#define MEMSCOPE_SLAB_CLASSES 64

/* What is known of the slab that begins at a page. */
struct memscope_slab {
    uint16_t owned, garbage; /* regions in use by live and by garbage owners */
    uint8_t slab_class;
};

struct memscope_block_sum {
    uint64_t count;
    uint64_t bytes; /* address space: what glibc's header or jemalloc's size class adds is included */
};

struct memscope_malloc_blocks {
    const struct memscope_ledger *ledger;
    struct memscope_block_sum owned, garbage; /* owned: the garbage too */

    /* inner parts */
    struct memscope_malloc_region *regions;
    size_t region_count, last;
    size_t unit_bytes;           /* every block begins at a multiple of it */
    uint64_t *seen, *doomed;     /* a bit a unit: a block begins here; and it is garbage. jemalloc: doomed is NULL */
    struct memscope_slab *slabs; /* one a page; NULL for glibc */
    struct memscope_slab_class classes[MEMSCOPE_SLAB_CLASSES];
    size_t class_count;
    struct memscope_mib batch_query;             /* how full a slab is; its length is 0 if this jemalloc cannot tell */
    struct memscope_block_sum doomed_runs;       /* page runs of large garbage, of jemalloc: resident bytes */
    uint64_t doomed_private_bytes;               /* those that no other process maps */
    struct memscope_residency private_residency; /* resident pages that no other process maps */
    enum memscope_status private_status;
    struct memscope_scratch list, marks, seen_memory;
};

/*
 * Prepares for the blocks that the ledger's allocator has; MEMSCOPE_UNSUPPORTED for another than glibc and jemalloc, or
 * where residency is not known by pages. The ledger stays open as long as this. 4 ms per resident GB, for which it asks
 * what other processes map too: in a forked child all memory is shared with the parent. No GVL. Close it in any case.
 */
enum memscope_status memscope_malloc_blocks_open(struct memscope_malloc_blocks *blocks, struct memscope_ledger *ledger);
void memscope_malloc_blocks_close(struct memscope_malloc_blocks *blocks);

/* Whether children forked from now on have it, and the ledger's claims, too. */
void memscope_malloc_blocks_inherit(struct memscope_malloc_blocks *blocks, struct memscope_ledger *ledger,
                                    int inherited);

/*
 * Counts the block that begins at address, once however often it is shown. Returns its size as malloc keeps it; 0 if it
 * was counted before, or is not known to begin a block. The address is one that malloc returned and that is in use now:
 * jemalloc believes that.
 */
size_t memscope_malloc_blocks_add(struct memscope_malloc_blocks *blocks, uintptr_t address, bool garbage);

/* Whether the address is in memory that the ledger has proven the allocator's. */
bool memscope_malloc_blocks_prove(struct memscope_malloc_blocks *blocks, uintptr_t address);

/* Resident bytes. The difference between most and least is what cannot be proven. */
struct memscope_returned {
    uint64_t least, most;
    uint64_t private_least, private_most; /* on pages that no other process maps */
};

/* Resident bytes of [start, end), page-aligned, in both bounds. */
void memscope_resident_bytes(const struct memscope_malloc_blocks *blocks, uintptr_t start, uintptr_t end,
                             struct memscope_returned *bytes);

/*
 * What the process gives back when the garbage shown so far is freed and malloc_trim is then called (glibc), or its
 * threads' caches are flushed and all arenas purged (jemalloc): from the pages that the garbage takes, and from those
 * that are free today. 0.3 to 0.6 µs for each chunk of glibc's heaps, 0.2 µs for each slab with garbage.
 */
struct memscope_blocks_returned {
    struct memscope_returned by_trim; /* or by purge: all that both levers together return */
    struct memscope_returned today;   /* what the second lever alone returns without the first */
    struct memscope_returned at_once; /* of by_trim, what goes back as soon as the garbage is freed */
    uint64_t in_use_bytes;            /* address space of glibc's blocks in use; 0 for jemalloc, which reports it */
};

enum memscope_status memscope_malloc_blocks_returned(struct memscope_malloc_blocks *blocks,
                                                     struct memscope_blocks_returned *returned);

#endif
