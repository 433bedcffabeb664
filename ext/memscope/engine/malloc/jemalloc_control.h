/*
 * What memscope changes in jemalloc: a closed list of operations. No function here takes the name of a key or a mib,
 * and each that takes an arena's index refuses one that is not below arenas.narenas.
 *
 * That leaves out, by construction, what is unsafe: arena.<i>.reset, destroy and extent_hooks; arenas.lookup (reads
 * through any pointer before 5.3.1); and arena.4096.dirty_decay_ms and its like, which index behind the end of
 * jemalloc's arenas (src/ctl.c arena_i_decay_ms_ctl_impl, 5.0 to 5.3.1): MALLCTL_ARENAS_ALL is for decay and purge.
 *
 * All take jemalloc's locks and may work for a long time (56 to 90 ms per GB purged): without the GVL. They need a
 * jemalloc that serves malloc (allocator.h); MEMSCOPE_UNSUPPORTED without one.
 */
#ifndef MEMSCOPE_JEMALLOC_CONTROL_H
#define MEMSCOPE_JEMALLOC_CONTROL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "malloc/jemalloc.h"

/* arenas.narenas: every index is below it, though not each is of an arena in use. 0 where no jemalloc serves malloc. */
unsigned memscope_jemalloc_arena_count(void);

/*
 * Gives unused dirty and muzzy pages back, those whose time has come or all of them, of one arena or of
 * MEMSCOPE_ALL_ARENAS. An arena that is not in use has none: MEMSCOPE_OK. MEMSCOPE_NOT_FOUND when there is no such
 * index.
 */
enum memscope_status memscope_jemalloc_decay(unsigned arena);
enum memscope_status memscope_jemalloc_purge(unsigned arena);

/* Moves what the calling thread has cached back into its arena. */
enum memscope_status memscope_jemalloc_flush_thread_cache(void);

enum memscope_jemalloc_decay_kind {
    MEMSCOPE_JEMALLOC_DIRTY,
    MEMSCOPE_JEMALLOC_MUZZY,
};

/* In place of an index, for decay times: the arenas that are made later. They begin with these. */
#define MEMSCOPE_LATER_ARENAS UINT_MAX

/* The longest decay time that jemalloc takes, in ms (include/jemalloc/internal/nstime.h, NSTIME_SEC_MAX). */
#define MEMSCOPE_JEMALLOC_MAX_DECAY_MS INT64_C(18446744072000)

/*
 * The time in ms after which unused pages of an arena are given back, 0 at once, -1 never. Setting one may give back
 * what is unused now: jemalloc's manual says it does unless it is -1; 5.3.0 does with 0, and otherwise counts these
 * pages as unused from now on. MEMSCOPE_NOT_FOUND for an arena that is not in use, MEMSCOPE_MALFORMED for a time below
 * -1 or above the longest.
 */
enum memscope_status memscope_jemalloc_read_decay_ms(unsigned arena, enum memscope_jemalloc_decay_kind kind,
                                                     int64_t *ms);
enum memscope_status memscope_jemalloc_set_decay_ms(unsigned arena, enum memscope_jemalloc_decay_kind kind, int64_t ms);

/*
 * Whether threads of jemalloc's own give pages back while the program's sleep. Off in a forked child, whatever the
 * parent had. MEMSCOPE_NOT_FOUND where this jemalloc was built without; MEMSCOPE_IO when no thread could be started.
 */
enum memscope_status memscope_jemalloc_read_background_thread(bool *on);
enum memscope_status memscope_jemalloc_set_background_thread(bool on);

#endif
