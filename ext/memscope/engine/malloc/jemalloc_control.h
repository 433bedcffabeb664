/*
 * The changes that memscope makes in jemalloc: a closed list of operations. No function takes the name of a key or a
 * mib, and each function with an arena's index rejects an index that is not below arenas.narenas.
 *
 * This excludes the unsafe keys by construction: arena.<i>.reset, destroy and extent_hooks, arenas.lookup (which reads
 * through any pointer before 5.3.1), and arena.4096.dirty_decay_ms and similar keys, which index past the end of
 * jemalloc's arenas (src/ctl.c arena_i_decay_ms_ctl_impl, 5.0 to 5.3.1). So MALLCTL_ARENAS_ALL is for decay and purge
 * only.
 *
 * All functions take jemalloc's locks and may run long (56 to 90 ms per GB purged). Call them without the GVL.
 * Functions that return a status return MEMSCOPE_UNSUPPORTED unless a jemalloc serves malloc (allocator.h).
 */
#pragma once

#include <limits.h>

#include "base/status.h"
#include "malloc/jemalloc.h"

/*
 * Returns arenas.narenas, or 0 if no jemalloc serves malloc. Every index is below it, though not every arena is in use.
 */
unsigned memscope_jemalloc_arena_count(void);

/*
 * Both return unused dirty and muzzy pages of all arenas to the kernel. decay returns those whose decay time has
 * passed, and purge all of them.
 */
enum memscope_status memscope_jemalloc_decay(void);
enum memscope_status memscope_jemalloc_purge(void);

/* Flushes the calling thread's cache into its arena. */
enum memscope_status memscope_jemalloc_flush_thread_cache(void);

enum memscope_jemalloc_decay_kind {
    MEMSCOPE_JEMALLOC_DIRTY,
    MEMSCOPE_JEMALLOC_MUZZY,
};

/* The index for the decay times with which new arenas start. */
#define MEMSCOPE_LATER_ARENAS UINT_MAX

/* The maximum decay time that jemalloc accepts, in ms (include/jemalloc/internal/nstime.h, NSTIME_SEC_MAX). */
#define MEMSCOPE_JEMALLOC_MAX_DECAY_MS INT64_C(18446744072000)

/*
 * The time in ms after which an arena returns unused pages: 0 for immediately, -1 for never. Setting it may return
 * pages that are unused now. By jemalloc's manual, this happens if the new time is not -1. In 5.3.0, it happens only if
 * the time is 0, and any other time restarts the decay of those pages. Returns MEMSCOPE_NOT_FOUND for an arena that is
 * not in use, and MEMSCOPE_MALFORMED for a time below -1 or above the maximum.
 */
enum memscope_status memscope_jemalloc_read_decay_ms(unsigned arena, enum memscope_jemalloc_decay_kind kind,
                                                     int64_t *ms);
enum memscope_status memscope_jemalloc_set_decay_ms(unsigned arena, enum memscope_jemalloc_decay_kind kind, int64_t ms);

/*
 * The setting for jemalloc's background threads, which return pages while the program is idle. Off in a forked child,
 * whatever the parent had. Returns MEMSCOPE_NOT_FOUND if this jemalloc was built without them, or MEMSCOPE_IO if none
 * could start.
 */
enum memscope_status memscope_jemalloc_read_background_thread(bool *on);
enum memscope_status memscope_jemalloc_set_background_thread(bool on);
