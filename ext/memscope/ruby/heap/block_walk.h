/*
 * One pass over all slots of a listing: the malloc memory that the objects own, and the memory that the process returns
 * to the kernel when the garbage among them is freed.
 */
#pragma once

#include "base/status.h"
#include "ledger/malloc_blocks.h"
#include "record_structs.h"

#include "ruby/heap/marking.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/held_memory.h"

#define MEMSCOPE_UNFOLLOWED_TYPES 32

/* Objects that own more than is known, by type. */
struct memscope_unfollowed {
    char name[64]; /* wrap_struct_name of a T_DATA, cut, or "untyped", "class", "code", "io", "other" */
    uint64_t objects, garbage;
};

/* Pages of Ruby's heap with only garbage or nothing, except the pages that GC.stat already counts as empty. */
struct memscope_emptied_pages {
    uint64_t pages;                    /* all of them */
    uint64_t least, most;              /* number that Ruby returns, by its rule */
    struct memscope_returned returned; /* resident bytes of the returned pages */
};

/* Holds no pointer, so a forked child can send it. */
struct memscope_block_walk {
    enum memscope_status status; /* of `returned` */
    bool private_known;          /* true if the pages that no other process maps are known */
    struct memscope_owned_bytes all, garbage;
    uint64_t garbage_of_rows[MEMSCOPE_ROW_COUNT]; /* as memscope_ledger_split_garbage takes them */
    struct memscope_held_memory said;             /* sizes that unfollowed objects report, and omitted types */
    struct memscope_unfollowed unfollowed[MEMSCOPE_UNFOLLOWED_TYPES]; /* the last entry sums up all further types */
    size_t unfollowed_count;
    struct memscope_emptied_pages heap;
    struct memscope_blocks_returned returned;
};

/*
 * Caller holds the GVL, or is the only thread of a forked child. No sweep is under way, and no other Ractor is alive.
 * Runs the dsize functions of C extensions. Objects that are not marked are garbage. Takes 20 to 60 ns per object,
 * plus the time of memscope_malloc_blocks_returned. Writes to `blocks` and `walk` only.
 */
void memscope_walk_blocks(const struct memscope_heap_listing *listing, struct memscope_malloc_blocks *blocks,
                          const struct memscope_marking *marking, struct memscope_block_walk *walk);
