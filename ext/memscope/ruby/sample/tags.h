/*
 * Memscope.tag: names the work (request, job) that the running fiber does.
 *
 * A run is one call of Memscope.tag. What is allocated counts for the innermost run of the fiber that allocates.
 */
#ifndef MEMSCOPE_TAGS_H
#define MEMSCOPE_TAGS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Index of the running fiber's tag; 0 if it has none. May run inside malloc, in any thread and state. */
uint32_t memscope_current_tag(void);

/* A run that has begun, for memscope_tag_end. */
struct memscope_tag_run {
    uint32_t tag, before;
    uint32_t life;
};

/*
 * Tags the running fiber. From the first call on, tags follow fibers. If there is no memory for the name, the run has
 * no tag. Must be called with the GVL, and never inside malloc.
 */
struct memscope_tag_run memscope_tag_begin(const char *name, size_t length);

/* Restores the tag from before the run. Must be called with the GVL, and never inside malloc. */
void memscope_tag_end(const struct memscope_tag_run *run);

/* What has happened under one tag since the process began. A forked child goes on from its parent's counts. */
struct memscope_tag_runs {
    uint64_t begun, ended; /* runs; those that a fork interrupted count as ended in the child */
    uint64_t malloc_bytes; /* allocated through malloc, as the allocator rounds them; what a thread has allocated since
                              its tag last changed is not yet included */
    uint64_t half_runs_before; /* begun + ended when the malloc profile began */
};

/* The runs of all tags, by index (MEMSCOPE_TAGS); NULL before the first run. With the GVL, which is their lock. */
const struct memscope_tag_runs *memscope_tag_runs(void);

/* Called when a malloc profile begins. With the GVL. */
void memscope_tag_runs_begin_profile(void);

/* Whether malloc_bytes is counted: MEMSCOPE_OK, or why not, as of the first run. */
enum memscope_status memscope_tag_bytes_status(void);

#endif
