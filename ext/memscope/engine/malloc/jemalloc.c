#include "malloc/jemalloc.h"

#include "malloc/jemalloc_keys.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#define PROBE_SIZE 12345

/* Maximum number of epochs to read until the figures of one epoch are consistent. */
#define ATTEMPTS 3

memscope_mallctl memscope_jemalloc_entry(void) {
    return memscope_jemalloc_binding().by_name;
}

enum memscope_status memscope_jemalloc_read(const char *key, void *value, size_t size) {
    struct memscope_jemalloc_binding jemalloc = memscope_jemalloc_binding();
    size_t length = size;
    int error;

    if (!jemalloc.by_name)
        return MEMSCOPE_UNSUPPORTED;
    error = jemalloc.by_name(key, value, &length, NULL, 0);
    if (error == ENOENT)
        return MEMSCOPE_NOT_FOUND;
    if (error == EINVAL || (error == 0 && length != size))
        return MEMSCOPE_MALFORMED;
    return error == 0 ? MEMSCOPE_OK : memscope_status_of_errno(error);
}

bool memscope_jemalloc_serves_malloc(memscope_mallctl by_name, size_t *requested, uint64_t *risen) {
    uint64_t before = 0, after = 0;
    size_t length = sizeof before;
    void *volatile block; /* volatile, since the compiler may otherwise drop a malloc whose block is only freed */
    int error;

    *requested = PROBE_SIZE;
    *risen = 0;
    if (!by_name || by_name("thread.allocated", &before, &length, NULL, 0) != 0)
        return false;
    block = malloc(PROBE_SIZE);
    error = by_name("thread.allocated", &after, &length, NULL, 0);
    free(block);
    *risen = error == 0 ? after - before : 0;
    return *risen >= PROBE_SIZE;
}

/* Resolved once per process, then only read. */
struct key_table {
    struct memscope_mib fields[MEMSCOPE_JEMALLOC_FIELD_COUNT];
    struct memscope_mib epoch, nbins, bin_size, bin_nregs, bin_curregs, bin_curslabs;
    const char *unsupported; /* reason for the lack of statistics, or NULL */
};

_Static_assert(MEMSCOPE_JEMALLOC_FIELD_COUNT <= 64, "struct memscope_jemalloc_stats.present has one bit a row");

#define STAT(field, key, type, unit, kind, since) {key, sizeof(type), offsetof(struct memscope_jemalloc_stats, field)},
static const struct {
    const char *key;
    size_t size;
    size_t offset;
} rows[MEMSCOPE_JEMALLOC_FIELD_COUNT] = {
#include "malloc/jemalloc_stats.def"
};

static const char *reason_for_no_stats(void) {
    size_t requested;
    uint64_t risen;
    bool stats;

    if (!memscope_jemalloc_entry())
        return "jemalloc_absent";
    if (!memscope_jemalloc_serves_malloc(memscope_jemalloc_entry(), &requested, &risen))
        return "jemalloc_not_serving";
    if (memscope_jemalloc_read("config.stats", &stats, sizeof stats) != MEMSCOPE_OK || !stats)
        return "jemalloc_without_statistics";
    return NULL;
}

static void resolve(struct key_table *keys) {
    struct memscope_jemalloc_binding jemalloc = memscope_jemalloc_binding();

    keys->unsupported = reason_for_no_stats();
    if (keys->unsupported || !jemalloc.name_to_mib)
        return;
    for (size_t row = 0; row < MEMSCOPE_JEMALLOC_FIELD_COUNT; row++)
        keys->fields[row] = memscope_jemalloc_mib(&jemalloc, rows[row].key);
    keys->epoch = memscope_jemalloc_mib(&jemalloc, "epoch");
    keys->nbins = memscope_jemalloc_mib(&jemalloc, "arenas.nbins");
    keys->bin_size = memscope_jemalloc_mib(&jemalloc, "arenas.bin.0.size");
    keys->bin_nregs = memscope_jemalloc_mib(&jemalloc, "arenas.bin.0.nregs");
    keys->bin_curregs = memscope_jemalloc_mib(&jemalloc, "stats.arenas.4096.bins.0.curregs");
    keys->bin_curslabs = memscope_jemalloc_mib(&jemalloc, "stats.arenas.4096.bins.0.curslabs");
}

/*
 * Returns the table, resolved once per process without a lock, so that a trap handler or a forked child never waits. A
 * caller that finds it incomplete resolves a table of its own into local, and the first caller to finish publishes its
 * table.
 */
static const struct key_table *resolved(struct key_table *local) {
    enum { EMPTY, BEING_COPIED, COMPLETE };
    static struct key_table shared;
    static atomic_int state;
    int empty = EMPTY;

    if (atomic_load_explicit(&state, memory_order_acquire) == COMPLETE)
        return &shared;
    resolve(local);
    if (atomic_compare_exchange_strong(&state, &empty, BEING_COPIED)) {
        shared = *local;
        atomic_store_explicit(&state, COMPLETE, memory_order_release);
    }
    return local;
}

static bool read_slab_slack(const struct memscope_jemalloc_binding *jemalloc, const struct key_table *keys,
                            uint64_t *slack_bytes) {
    struct memscope_mib size_mib = keys->bin_size, nregs_mib = keys->bin_nregs;
    struct memscope_mib curregs_mib = keys->bin_curregs, curslabs_mib = keys->bin_curslabs;
    uint64_t nbins, size, nregs, curregs, curslabs;

    *slack_bytes = 0;
    if (!memscope_jemalloc_read_mib(jemalloc, &keys->nbins, sizeof(unsigned), &nbins))
        return false;
    for (size_t bin = 0; bin < nbins; bin++) {
        size_mib.parts[MEMSCOPE_MIB_CONSTANT] = nregs_mib.parts[MEMSCOPE_MIB_CONSTANT] = bin;
        curregs_mib.parts[MEMSCOPE_MIB_CLASS] = curslabs_mib.parts[MEMSCOPE_MIB_CLASS] = bin;
        if (!memscope_jemalloc_read_mib(jemalloc, &size_mib, sizeof(size_t), &size) ||
            !memscope_jemalloc_read_mib(jemalloc, &nregs_mib, sizeof(uint32_t), &nregs) ||
            !memscope_jemalloc_read_mib(jemalloc, &curregs_mib, sizeof(size_t), &curregs) ||
            !memscope_jemalloc_read_mib(jemalloc, &curslabs_mib, sizeof(size_t), &curslabs))
            return false;
        *slack_bytes += (nregs * curslabs - curregs) * size;
    }
    return true;
}

/* Returns true if the epoch is the same after the last row as it was at the first. */
static bool read_rows(const struct memscope_jemalloc_binding *jemalloc, const struct key_table *keys,
                      struct memscope_jemalloc_stats *stats) {
    uint64_t epoch_after = 0;

    *stats = (struct memscope_jemalloc_stats){0};
    for (size_t row = 0; row < MEMSCOPE_JEMALLOC_FIELD_COUNT; row++) {
        uint64_t *field = (uint64_t *)((char *)stats + rows[row].offset);

        if (memscope_jemalloc_read_mib(jemalloc, &keys->fields[row], rows[row].size, field))
            stats->present |= UINT64_C(1) << row;
    }
    stats->has_slab_slack = read_slab_slack(jemalloc, keys, &stats->slab_slack_bytes);
    return memscope_jemalloc_read_mib(jemalloc, &keys->epoch, sizeof epoch_after, &epoch_after) &&
           epoch_after == stats->epoch;
}

/*
 * jemalloc locks arenas and bins one after the other while it takes statistics, so threads that allocate at the same
 * time can make the statistics disagree.
 */
static bool contradict_each_other(const struct memscope_jemalloc_stats *stats) {
    return stats->active_bytes < stats->allocated_bytes + stats->slab_slack_bytes ||
           stats->resident_bytes < (stats->pactive + stats->pdirty) * stats->page_bytes ||
           memscope_jemalloc_in_use(stats) < 0;
}

int64_t memscope_jemalloc_in_use(const struct memscope_jemalloc_stats *stats) {
    return (int64_t)stats->allocated_bytes -
           (int64_t)(stats->tcache_bytes + stats->tcache_stashed_bytes + stats->internal_bytes);
}

enum memscope_status memscope_jemalloc_read_stats(struct memscope_jemalloc_stats *stats) {
    struct key_table local = {0};
    const struct key_table *keys = resolved(&local);
    struct memscope_jemalloc_binding jemalloc = memscope_jemalloc_binding();
    enum memscope_status status = MEMSCOPE_OK;

    *stats = (struct memscope_jemalloc_stats){0};
    if (keys->unsupported || !jemalloc.by_mib)
        return MEMSCOPE_UNSUPPORTED;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if ((status = memscope_jemalloc_advance_epoch(&jemalloc)) != MEMSCOPE_OK)
            return status;
        stats->mixed_epochs = !read_rows(&jemalloc, keys, stats) && !read_rows(&jemalloc, keys, stats);
        if (!contradict_each_other(stats))
            break;
    }
    return MEMSCOPE_OK;
}

const char *memscope_jemalloc_unsupported_reason(void) {
    struct key_table local = {0};

    return resolved(&local)->unsupported;
}
