/*
 * jemalloc's own numbers through its documented mallctl interface.
 *
 * mallctl is bound through weak symbols: the dynamic linker resolves it to the jemalloc that the process runs, or to
 * NULL if it runs none. jemalloc_stats.def is the table of every key read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* One bit per row of jemalloc_stats.def. A key that this jemalloc lacks leaves its bit clear and its field 0. */
#define STAT(field, key, type, unit, kind, since) MEMSCOPE_JEMALLOC_HAS_##field,
enum memscope_jemalloc_field {
#include "malloc/jemalloc_stats.def"
    MEMSCOPE_JEMALLOC_FIELD_COUNT
};

#define STAT(field, key, type, unit, kind, since) uint64_t field;
struct memscope_jemalloc_stats {
#include "malloc/jemalloc_stats.def"
    uint64_t slab_slack_bytes; /* Σ over the bins of (nregs·curslabs − curregs)·size, all arenas */
    bool has_slab_slack;
    uint64_t present;  /* 1 << MEMSCOPE_JEMALLOC_HAS_field for each key that could be read */
    bool mixed_epochs; /* rows may be of two epochs, since another caller advanced the epoch during both attempts */
};

/* MALLCTL_ARENAS_ALL of jemalloc/jemalloc.h, the index of all arenas together. */
#define MEMSCOPE_ALL_ARENAS 4096

typedef int (*memscope_mallctl)(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);

/* The bound mallctl, NULL if none is bound. allocator.h identifies the allocator that serves malloc. */
memscope_mallctl memscope_jemalloc_entry(void);

/*
 * Returns true if malloc goes through the jemalloc of this mallctl: the calling thread's thread.allocated rises by
 * *risen, at least *requested, across a malloc of *requested bytes. Allocates and frees one block. Returns false if
 * there is no thread.allocated (5.2.1 and earlier without config.stats).
 */
bool memscope_jemalloc_serves_malloc(memscope_mallctl mallctl, size_t *requested, uint64_t *risen);

/*
 * Reads a key by name into value, which has exactly size bytes. Returns MEMSCOPE_NOT_FOUND if this jemalloc has no such
 * key, and MEMSCOPE_MALFORMED if the key's value has another size. Allocates nothing after the first mallctl of the
 * process.
 */
enum memscope_status memscope_jemalloc_read(const char *key, void *value, size_t size);

static inline bool memscope_jemalloc_has(const struct memscope_jemalloc_stats *stats,
                                         enum memscope_jemalloc_field field) {
    return (stats->present >> field & 1) != 0;
}

/*
 * Advances the epoch and reads every key of the table by its cached mib, up to three times if the figures contradict
 * each other. Takes jemalloc's ctl lock, each time for about 6 µs plus 6.5 µs for each initialised arena. No GVL
 * needed. The first call resolves the mibs (and makes jemalloc allocate its ctl tables), and later calls allocate
 * nothing. Returns MEMSCOPE_UNSUPPORTED without a mallctl or without config.stats, and for a jemalloc that does not
 * serve malloc, whose figures do not describe this process.
 */
enum memscope_status memscope_jemalloc_read_stats(struct memscope_jemalloc_stats *stats);

/*
 * Bytes that the program has been given: stats.allocated minus the blocks in thread caches and jemalloc's allocations
 * for itself (thread caches' tables, its profiler's stacks). Negative if the statistics contradict each other.
 */
int64_t memscope_jemalloc_in_use(const struct memscope_jemalloc_stats *stats);

/* The id of the reason why memscope_jemalloc_read_stats returns MEMSCOPE_UNSUPPORTED, or NULL if it does not. */
const char *memscope_jemalloc_unsupported_reason(void);
