/*
 * jemalloc's own profiler (opt.prof) with memscope's stacks: through experimental.hooks.prof_backtrace, since 5.3.0.
 *
 * jemalloc samples, follows frees, and sums by stack. It calls the stack reader with none of its locks held, inside
 * pre_reentrancy, so that malloc in it is neither sampled nor a deadlock (src/prof_sys.c, prof_data.c of 5.3.0).
 */
#ifndef MEMSCOPE_JEMALLOC_PROFILE_H
#define MEMSCOPE_JEMALLOC_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/scratch.h"
#include "base/status.h"
#include "sampling/sampled_stack.h"

/* Whether this jemalloc can profile. */
enum memscope_jemalloc_profiling {
    MEMSCOPE_PROFILING_ON,        /* opt.prof */
    MEMSCOPE_PROFILING_OFF,       /* built with a profiler, which was not enabled when the process started */
    MEMSCOPE_PROFILING_NOT_BUILT, /* config.prof is false */
    MEMSCOPE_PROFILING_NO_HOOK,   /* before 5.3.0 */
    MEMSCOPE_PROFILING_OTHER,     /* no jemalloc serves malloc */
};

enum memscope_jemalloc_profiling memscope_jemalloc_profiling(void);

/* MEMSCOPE_UNSUPPORTED where start could not work. Changes nothing. */
enum memscope_status memscope_jemalloc_profile_prepare(void);

/*
 * Samples one byte in 2^rate_log from now on, and drops jemalloc's earlier samples. Where the profile was already
 * active (prof_active's default), stop leaves it active. Each thread first completes the interval that it drew at the
 * earlier rate. With prof_accum, jemalloc's counts of each stack survive the next start, unseen: some 7 kB per start
 * for one stack in one thread.
 */
enum memscope_status memscope_jemalloc_profile_start(unsigned rate_log, memscope_stack_reader reader);
void memscope_jemalloc_profile_stop(void);

/*
 * Live blocks now, estimated as jeprof does. Frees are followed after the stop, too. jemalloc writes its profile into a
 * file in memory (3 ms for 1,000 stacks of 46 frames), which this reads: without the GVL, but not beside a fork, in one
 * thread at a time. MEMSCOPE_MALFORMED for a profile of another form than 5.3's.
 */
enum memscope_status memscope_jemalloc_profile_read(struct memscope_scratch *scratch,
                                                    struct memscope_sampled_stacks *stacks);

/*
 * Bytes that sampling itself adds to stats.active: jemalloc gives a sampled small block, of less than 16 KiB, its own
 * extent: up to 5.3.0 of 16 KiB (arena_prof_promote; SC_LARGE_MINCLASS), since 5.3.1 of as many pages as it takes
 * (jemalloc/jemalloc#2459), plus one page with cache_oblivious, its default. stats.allocated does not count that page.
 * With 64 KiB pages, as in Debian's arm64 build, 5.3.0's extent is 256 KiB.
 */
uint64_t memscope_jemalloc_profile_inflation(const struct memscope_sampled_stacks *stacks);

/* Only parses: size bytes of text, to which it keeps no reference. */
enum memscope_status memscope_jemalloc_profile_parse(const char *text, size_t size, struct memscope_scratch *scratch,
                                                     struct memscope_sampled_stacks *stacks);

#endif
