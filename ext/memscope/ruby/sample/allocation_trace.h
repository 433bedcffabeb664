/*
 * Counts every object that one thread or all threads allocate, by class and line, and tells which of them survive;
 * measurements use it. Slower than sampling (ruby/sample/object_sampler.h), so it runs only for the length of a block.
 *
 * A hook (NEWOBJ) counts each allocation. At the end of each mark phase, the mark bits tell which of the objects are
 * dead; the sizes of the dead can still be read, since nothing has been swept yet. So garbage is collected as usual,
 * and the log holds live objects and recent garbage only. Nothing is kept alive: paths and classes become text at once.
 *
 * With the GVL, in the main Ractor; one trace at a time.
 */
#ifndef MEMSCOPE_ALLOCATION_TRACE_H
#define MEMSCOPE_ALLOCATION_TRACE_H

#include "graph/names.h"
#include "ruby/held_memory.h"
#include "sampling/allocation_counts.h"

#include <ruby.h>
#include <stdbool.h>
#include <stdint.h>

/* Why a trace cannot start. */
enum memscope_trace_obstacle {
    MEMSCOPE_TRACE_READY,
    MEMSCOPE_TRACE_NO_MARKS, /* this Ruby does not tell which objects are marked */
    MEMSCOPE_TRACE_NO_MEMORY,
    MEMSCOPE_TRACE_RACTORS, /* memscope_event_hooks_obstacle says why */
};

/*
 * Adds the hooks, for allocations of the calling thread, or of all threads of the main Ractor. Nothing is counted
 * before memscope_trace_count.
 */
enum memscope_trace_obstacle memscope_trace_start(bool all_threads);

/* Starts or stops counting. Allocates nothing. */
void memscope_trace_count(bool counting);

/*
 * Removes the hooks, and forgets all. To be called before another Ractor is created, too. Works in a forked child. No
 * effect if no trace runs.
 */
void memscope_trace_stop(void);

/* Not if its hooks were removed because of a Ractor. */
bool memscope_trace_runs(void);

struct memscope_trace_result {
    const struct memscope_allocation_counts *counts; /* until the trace is stopped */
    const struct memscope_names *names;              /* of the groups in `counts`; likewise */
    const struct memscope_held_memory *held;         /* which objects were not asked for their bytes; likewise */
    uint64_t others;                                 /* other allocations while the trace counted */
    uint64_t unsized;    /* T_DATA objects found dead, which cannot be asked for their size */
    uint64_t gc_ns;      /* CPU time that the trace has added to mark phases */
    bool knows_retained; /* false if a GC was not seen by the hooks, or there was no memory */
};

/* Sizes the survivors, once. Call it right after a full GC that followed the last allocation counted. */
struct memscope_trace_result memscope_trace_read(void);

#endif
