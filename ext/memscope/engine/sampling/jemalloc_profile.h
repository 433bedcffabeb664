/*
 * jemalloc's own profiler (opt.prof) with memscope's stacks: through experimental.hooks.prof_backtrace, since 5.3.0.
 *
 * jemalloc samples, tracks frees, and sums by stack. It calls the stack reader with none of its locks held, inside
 * pre_reentrancy, so that a malloc in the reader is not sampled and does not deadlock (src/prof_sys.c, prof_data.c of
 * 5.3.0).
 */
#pragma once

#include "base/scratch.h"
#include "base/status.h"
#include "sampling/sampled_stack.h"

/* Availability of jemalloc's profiler. */
enum memscope_jemalloc_profiling {
    MEMSCOPE_PROFILING_ON,        /* opt.prof */
    MEMSCOPE_PROFILING_OFF,       /* built with a profiler, but not enabled when the process started */
    MEMSCOPE_PROFILING_NOT_BUILT, /* config.prof is false */
    MEMSCOPE_PROFILING_NO_HOOK,   /* before 5.3.0 */
    MEMSCOPE_PROFILING_OTHER,     /* jemalloc does not serve malloc */
};

enum memscope_jemalloc_profiling memscope_jemalloc_profiling(void);

/* Checks the conditions of start and changes nothing. Returns MEMSCOPE_UNSUPPORTED if start cannot work. */
enum memscope_status memscope_jemalloc_profile_prepare(void);

/*
 * Samples one byte in 2^rate_log from now on, and drops jemalloc's earlier samples. If profiling was already active
 * (the default of opt.prof_active), stop leaves it active. Each thread first completes the sampling interval that it
 * drew at the earlier rate. With opt.prof_accum, jemalloc keeps its counters of each stack past the next start, though
 * it no longer reports them: some 7 kB per start for one stack in one thread.
 */
enum memscope_status memscope_jemalloc_profile_start(unsigned rate_log, memscope_stack_reader reader);
void memscope_jemalloc_profile_stop(void);

/*
 * Estimates the live blocks now, as jeprof does. Frees are tracked even after stop. jemalloc writes its profile into a
 * memfd (3 ms for 1,000 stacks of 46 frames), which is then read. Without the GVL, one thread at a time. Returns
 * MEMSCOPE_MALFORMED for a profile in any other form than 5.3's, and MEMSCOPE_DENIED if the size of files is limited
 * (RLIMIT_FSIZE).
 */
enum memscope_status memscope_jemalloc_profile_read(struct memscope_scratch *scratch,
                                                    struct memscope_sampled_stacks *stacks);

/*
 * Bytes that sampling itself adds to stats.active and to stats.allocated: jemalloc gives each sampled small block (less
 * than 16 KiB) an extent of its own. Up to 5.3.0 the extent is 16 KiB (arena_prof_promote, SC_LARGE_MINCLASS), and
 * since 5.3.1 the pages that the block needs (jemalloc/jemalloc#2459). cache_oblivious, on by default, adds one page,
 * which stats.allocated does not count. With 64 KiB pages, as in Debian's arm64 build, 5.3.0's extent is 256 KiB.
 *
 * `allocated` is negative where stats.allocated leaves out the sampled blocks: 5.3.1 counts an extent of less than
 * 16 KiB neither as a region in use nor as a large block (arena_large_malloc_stats_update).
 */
struct memscope_jemalloc_inflation {
    uint64_t active;
    int64_t allocated;
};

struct memscope_jemalloc_inflation memscope_jemalloc_profile_inflation(const struct memscope_sampled_stacks *stacks);

/* The parser alone. `text` has `size` bytes before its NUL, and no reference to it is kept. */
enum memscope_status memscope_jemalloc_profile_parse(const char *text, size_t size, struct memscope_scratch *scratch,
                                                     struct memscope_sampled_stacks *stacks);
