/*
 * The owner of each malloc block: a number that the allocating thread has set. Exact for every block allocated through
 * an import (sampling/import_sampler.h), whatever library serves malloc.
 *
 * Number 0 stands for blocks from before the start, which are not counted. A block that realloc moves keeps its owner.
 */
#pragma once

#include <stdint.h>

#include "base/status.h"

#define MEMSCOPE_OWNER_LIMIT (1u << 20) /* all numbers are below this limit */

/* The numbers below MEMSCOPE_OWNER_FIRST have a fixed meaning. */
enum memscope_owner {
    MEMSCOPE_OWNER_BEFORE,
    MEMSCOPE_OWNER_OUTSIDE,  /* blocks of a thread that has set no number */
    MEMSCOPE_OWNER_RUBY,     /* allocations of a garbage collection, and each struct heap_page */
    MEMSCOPE_OWNER_MEMSCOPE, /* memscope's own records */
    MEMSCOPE_OWNER_FIRST,    /* the first of the caller's numbers */
};

/* Blocks in use, with the bytes that malloc rounds them to: glibc's chunks, jemalloc's size classes. */
struct memscope_owned_blocks {
    uint64_t count, bytes;
};

/*
 * Records owners from now on, in this process and in children forked from it. Fails as
 * memscope_import_sampler_record does, or with MEMSCOPE_NO_MEMORY. Call it once per process, before other threads run.
 */
enum memscope_status memscope_block_owners_start(void);

/* Ends recording. The totals per owner stay readable. */
void memscope_block_owners_stop(void);

/* From now on, this thread's allocations belong to `owner`, which is below the limit. Returns the previous owner. */
uint32_t memscope_owner_set(uint32_t owner);

/* The current owner of this thread's allocations. */
uint32_t memscope_owner(void);

/* Gives the block at this address to another owner, if it has an owner. It must be in use. */
void memscope_owner_give(uintptr_t address, uint32_t owner);

/* The blocks that a number owns now, zeros if recording was never started. */
struct memscope_owned_blocks memscope_owned_blocks(uint32_t owner);

/* The number of blocks that were freed unseen and still count, although their addresses were used again. */
uint64_t memscope_blocks_freed_unseen(void);

/* The number of blocks without an owner, because the map had no room for their addresses. */
uint64_t memscope_blocks_without_room(void);
