/*
 * jemalloc's own profiler (opt.prof), with stacks of ours: through experimental.hooks.prof_backtrace, since 5.3.0.
 *
 * jemalloc samples, follows frees, and adds up by stack. It calls the stack reader with none of its locks held, inside
 * pre_reentrancy, so that malloc in it is neither sampled nor a deadlock (src/prof_sys.c, prof_data.c of 5.3.0).
 */
#ifndef MEMSCOPE_JEMALLOC_PROFILE_H
#define MEMSCOPE_JEMALLOC_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/scratch.h"
#include "base/status.h"
#include "sampling/sampled_stack.h"

/* What this jemalloc can do. */
enum memscope_jemalloc_profiling {
    MEMSCOPE_PROFILING_ON,        /* opt.prof */
    MEMSCOPE_PROFILING_OFF,       /* it was built with a profiler that was not asked for when the process started */
    MEMSCOPE_PROFILING_NOT_BUILT, /* config.prof is false */
    MEMSCOPE_PROFILING_NO_HOOK,   /* before 5.3.0 */
    MEMSCOPE_PROFILING_OTHER,     /* no jemalloc serves malloc */
};

enum memscope_jemalloc_profiling memscope_jemalloc_profiling(void);

/* MEMSCOPE_UNSUPPORTED where start could not do anything either. Changes nothing. */
enum memscope_status memscope_jemalloc_profile_prepare(void);

/*
 * Samples one byte in 2^rate_log from now on. Forgets what jemalloc had sampled before. Where the profile was active
 * already (prof_active's default), stop leaves it so. Each thread first counts to the end of the interval that it drew
 * at the rate before. With prof_accum, what jemalloc has counted of each stack stays after the next start, unseen: some
 * 7 kB a start for one stack in one thread.
 */
enum memscope_status memscope_jemalloc_profile_start(unsigned rate_log, memscope_stack_reader reader);
void memscope_jemalloc_profile_stop(void);

/*
 * What lives by now, estimated as jeprof does. Frees are followed after the stop too. jemalloc writes its profile into
 * a file in memory (3 ms for 1,000 stacks of 46 frames), which is read from there: without the GVL, but not beside a
 * fork, in one thread at a time. MEMSCOPE_MALFORMED for a profile that does not look as 5.3 writes it.
 */
enum memscope_status memscope_jemalloc_profile_read(struct memscope_scratch *scratch,
                                                    struct memscope_sampled_stacks *stacks);

/*
 * Bytes that sampling adds to stats.active by itself: jemalloc gives a sampled small block, of less than 16 KiB, an
 * extent, up to 5.3.0 one of 16 KiB (arena_prof_promote; SC_LARGE_MINCLASS), since 5.3.1 one of as many pages as it
 * takes (jemalloc/jemalloc#2459), and with cache_oblivious, its default, a page more. In stats.allocated that page is
 * not counted. With its pages of 64 KiB, as Debian's has on arm64, 5.3.0's extent is 256 KiB.
 */
uint64_t memscope_jemalloc_profile_inflation(const struct memscope_sampled_stacks *stacks);

/* The parser alone, of size bytes. Keeps no reference to text. */
enum memscope_status memscope_jemalloc_profile_parse(const char *text, size_t size, struct memscope_scratch *scratch,
                                                     struct memscope_sampled_stacks *stacks);

#endif
