/*
 * Memscope.tag: names the work (request, job) that the running fiber does.
 *
 * A run is one call of Memscope.tag. Allocations are charged to the innermost run of the fiber that allocates.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Index of the running fiber's tag, 0 if it has none. May run inside malloc, in any thread and state. */
uint32_t memscope_current_tag(void);

/* A run that has begun, for memscope_tag_end. */
struct memscope_tag_run {
    uint32_t tag, before;
    uint32_t life;
};

/*
 * Tags the running fiber. From the first call on, tags follow fibers. If there is no memory for the name, the run has
 * no tag. Call it with the GVL, and never inside malloc.
 */
struct memscope_tag_run memscope_tag_begin(const char *name, size_t length);

/* Restores the tag from before the run. Call it with the GVL, and never inside malloc. */
void memscope_tag_end(const struct memscope_tag_run *run);

/* The work under one tag since the process began. A forked child goes on from its parent's counts. */
struct memscope_tag_runs {
    uint64_t begun, ended;     /* runs, where a fork ends interrupted runs in the child */
    uint64_t malloc_bytes;     /* allocated through malloc, as the allocator rounds them, without a thread's allocations
                                  since its tag last changed */
    uint64_t half_runs_before; /* begun + ended when the malloc profile began */
};

/* The runs of all tags, by index (MEMSCOPE_TAGS), or NULL before the first run. With the GVL, which is their lock. */
const struct memscope_tag_runs *memscope_tag_runs(void);

/* Called when a malloc profile begins. With the GVL. */
void memscope_tag_runs_begin_profile(void);

/* MEMSCOPE_OK if malloc_bytes is counted, or the reason, as of the first run. */
enum memscope_status memscope_tag_bytes_status(void);
