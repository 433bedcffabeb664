/*
 * Actions (levers): an allocator's ways to return memory. Ruby's own (GC, compaction) are implemented in Ruby.
 *
 * An action takes the allocator's locks and may last long (malloc_trim: 275 ms for 213 of 1218 MB). Call
 * memscope_lever_run without the GVL.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum memscope_lever {
    MEMSCOPE_LEVER_TCACHE,  /* jemalloc: flushes the calling thread's cache into its arena */
    MEMSCOPE_LEVER_DECAY,   /* jemalloc: returns unused pages whose decay time has passed */
    MEMSCOPE_LEVER_PURGE,   /* jemalloc: returns all unused pages */
    MEMSCOPE_LEVER_TRIM,    /* glibc: malloc_trim(0), returns whole pages inside free chunks of all arenas */
    MEMSCOPE_LEVER_COLLECT, /* mimalloc: mi_collect(true), returns unused memory of the calling thread's heap and
                               abandoned memory, tcmalloc: returns the free spans of its page heap */
    MEMSCOPE_LEVER_COUNT,
};

/* "tcache", "decay", … */
const char *memscope_lever_name(enum memscope_lever lever);

/* The id of the reason why the allocator that serves malloc has no such lever, NULL if it has one. Any context. */
const char *memscope_lever_missing(enum memscope_lever lever);

/* Runs the lever. Returns MEMSCOPE_UNSUPPORTED if this allocator has no such lever. */
enum memscope_status memscope_lever_run(enum memscope_lever lever);

/*
 * Free resident bytes in tcmalloc's page heap, which collect returns. Returns false if tcmalloc does not serve malloc
 * or does not report them.
 */
bool memscope_lever_collectable_bytes(uint64_t *bytes);
