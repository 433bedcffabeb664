/*
 * Counts every object that one thread or all threads allocate, by class and line, and finds the survivors, for
 * measurements. Slower than sampling (ruby/sample/object_sampler.h), so it runs only for the length of a block.
 *
 * A hook (NEWOBJ) counts each allocation. At the end of each mark phase, the mark bits show which of the objects are
 * dead, and nothing has been swept yet, so their sizes can still be read. Garbage is collected as usual, and the log
 * has only live objects and recent garbage. Paths and classes become text immediately, so nothing is kept alive.
 *
 * With the GVL, in the main Ractor, one trace at a time.
 */
#pragma once

#include "graph/names.h"
#include "ruby/held_memory.h"
#include "sampling/allocation_counts.h"

#include <ruby.h>

/*
 * Adds the hooks, for allocations of the calling thread, or of all threads of the main Ractor. Nothing is counted
 * before memscope_trace_count. Returns the reason why a trace cannot start, or NULL.
 */
const char *memscope_trace_start(bool all_threads);

/* Starts or stops counting. Allocates nothing. */
void memscope_trace_count(bool counting);

/*
 * Removes the hooks, and forgets all. Call it also before another Ractor is created. Works in a forked child. Has no
 * effect if no trace is running.
 */
void memscope_trace_stop(void);

/* False if its hooks were removed because of a Ractor. */
bool memscope_trace_runs(void);

struct memscope_trace_result {
    const struct memscope_allocation_counts *counts; /* until the trace is stopped */
    const struct memscope_names *names;              /* of the groups in `counts`, likewise */
    const struct memscope_held_memory *held;         /* objects whose dsize was not called, likewise */
    uint64_t others;                                 /* other allocations while the trace counted */
    uint64_t unsized;                                /* dead T_DATA objects, whose dsize cannot be called */
    uint64_t gc_ns;                                  /* CPU time that the trace has added to mark phases */
    bool knows_retained;                             /* false after a GC without the hooks, or if there was no memory */
};

/* Sizes the survivors, once. Call it right after a full GC that followed the last allocation counted. */
struct memscope_trace_result memscope_trace_read(void);
