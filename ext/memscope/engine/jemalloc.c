#include "jemalloc.h"

#ifdef __linux__

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The deepest key read here, stats.arenas.<i>.bins.<j>.<name>, has six parts. */
#define MIB_PARTS 6

/* Where j stands in the mibs of arenas.bin.<j>.<name> and stats.arenas.<i>.bins.<j>.<name>. */
#define BIN_CONSTANT_INDEX 2
#define BIN_STATISTIC_INDEX 4

#define PROBE_SIZE 12345

#define WEAK __attribute__((weak))

/*
 * As jemalloc/jemalloc.h declares them (5.0 to 5.3.1); the engine's tests compile them against that header where it
 * is installed. Weak: NULL where the process runs no such jemalloc.
 */
extern WEAK int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
extern WEAK int mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp);
extern WEAK int mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
extern WEAK const char *malloc_conf;

/* The same of a jemalloc configured --with-jemalloc-prefix=je_. */
extern WEAK int je_mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
extern WEAK int je_mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp);
extern WEAK int je_mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
                                size_t newlen);
extern WEAK const char *je_malloc_conf;

struct binding {
    const char *prefix;
    memscope_mallctl by_name;
    int (*name_to_mib)(const char *, size_t *, size_t *);
    int (*by_mib)(const size_t *, size_t, void *, size_t *, void *, size_t);
    const char **conf;
};

static struct binding bound(void) {
    if (mallctl && mallctlnametomib && mallctlbymib)
        return (struct binding){"", mallctl, mallctlnametomib, mallctlbymib, &malloc_conf};
    if (je_mallctl && je_mallctlnametomib && je_mallctlbymib)
        return (struct binding){"je_", je_mallctl, je_mallctlnametomib, je_mallctlbymib, &je_malloc_conf};
    return (struct binding){"", NULL, NULL, NULL, NULL};
}

bool memscope_jemalloc_bound(void) {
    return bound().by_name != NULL;
}

memscope_mallctl memscope_jemalloc_entry(void) {
    return bound().by_name;
}

const char *memscope_jemalloc_prefix(void) {
    return bound().prefix;
}

const char *memscope_jemalloc_program_conf(void) {
    const char **conf = bound().conf;

    return conf ? *conf : NULL;
}

enum memscope_status memscope_jemalloc_read(const char *key, void *value, size_t size) {
    struct binding jemalloc = bound();
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
    void *volatile block; /* volatile: the compiler may otherwise drop a malloc whose block is only freed */
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

struct mib {
    size_t parts[MIB_PARTS];
    size_t length; /* 0: this jemalloc has no such key */
};

/* What is found out once a process and then only read. */
struct key_table {
    struct mib fields[MEMSCOPE_JEMALLOC_FIELD_COUNT];
    struct mib epoch, nbins, bin_size, bin_nregs, bin_curregs, bin_curslabs;
    const char *unsupported; /* why there are no statistics, or NULL */
};

_Static_assert(MEMSCOPE_JEMALLOC_FIELD_COUNT <= 64, "struct memscope_jemalloc_stats.present has one bit a row");

#define STAT(field, key, type, unit, kind, since) {key, sizeof(type), offsetof(struct memscope_jemalloc_stats, field)},
static const struct {
    const char *key;
    size_t size;
    size_t offset;
} rows[MEMSCOPE_JEMALLOC_FIELD_COUNT] = {
#include "jemalloc_stats.def"
};
#undef STAT

static struct mib mib_of(const struct binding *jemalloc, const char *key) {
    struct mib mib = {.length = MIB_PARTS};

    if (jemalloc->name_to_mib(key, mib.parts, &mib.length) != 0)
        mib.length = 0;
    return mib;
}

static const char *reason_for_no_stats(void) {
    size_t requested;
    uint64_t risen;
    bool stats;

    if (!memscope_jemalloc_bound())
        return "no jemalloc in this process";
    if (!memscope_jemalloc_serves_malloc(memscope_jemalloc_entry(), &requested, &risen))
        return "the jemalloc in this process does not serve malloc";
    if (memscope_jemalloc_read("config.stats", &stats, sizeof stats) != MEMSCOPE_OK || !stats)
        return "this jemalloc was built without statistics (config.stats is false)";
    return NULL;
}

static void resolve(struct key_table *keys) {
    struct binding jemalloc = bound();

    keys->unsupported = reason_for_no_stats();
    if (keys->unsupported || !jemalloc.name_to_mib)
        return;
    for (size_t row = 0; row < MEMSCOPE_JEMALLOC_FIELD_COUNT; row++)
        keys->fields[row] = mib_of(&jemalloc, rows[row].key);
    keys->epoch = mib_of(&jemalloc, "epoch");
    keys->nbins = mib_of(&jemalloc, "arenas.nbins");
    keys->bin_size = mib_of(&jemalloc, "arenas.bin.0.size");
    keys->bin_nregs = mib_of(&jemalloc, "arenas.bin.0.nregs");
    keys->bin_curregs = mib_of(&jemalloc, "stats.arenas.4096.bins.0.curregs");
    keys->bin_curslabs = mib_of(&jemalloc, "stats.arenas.4096.bins.0.curslabs");
}

/*
 * The table, resolved once a process without a lock, so that a trap handler or a forked child can never wait for it:
 * whoever finds it incomplete resolves its own into local, and the first to finish shares it.
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

/* Widens a value of size bytes: bool, unsigned, size_t and uint64_t are all there are. */
static bool read_mib(const struct binding *jemalloc, const struct mib *mib, size_t size, uint64_t *value) {
    union {
        uint8_t one;
        uint32_t four;
        uint64_t eight;
    } raw;
    size_t length = size;

    if (mib->length == 0 || jemalloc->by_mib(mib->parts, mib->length, &raw, &length, NULL, 0) != 0 || length != size)
        return false;
    *value = size == sizeof raw.one ? raw.one : size == sizeof raw.four ? raw.four : raw.eight;
    return true;
}

static bool read_slab_slack(const struct binding *jemalloc, const struct key_table *keys, uint64_t *slack_bytes) {
    struct mib size_mib = keys->bin_size, nregs_mib = keys->bin_nregs;
    struct mib curregs_mib = keys->bin_curregs, curslabs_mib = keys->bin_curslabs;
    uint64_t nbins, size, nregs, curregs, curslabs;

    *slack_bytes = 0;
    if (!read_mib(jemalloc, &keys->nbins, sizeof(unsigned), &nbins))
        return false;
    for (size_t bin = 0; bin < nbins; bin++) {
        size_mib.parts[BIN_CONSTANT_INDEX] = nregs_mib.parts[BIN_CONSTANT_INDEX] = bin;
        curregs_mib.parts[BIN_STATISTIC_INDEX] = curslabs_mib.parts[BIN_STATISTIC_INDEX] = bin;
        if (!read_mib(jemalloc, &size_mib, sizeof(size_t), &size) ||
            !read_mib(jemalloc, &nregs_mib, sizeof(uint32_t), &nregs) ||
            !read_mib(jemalloc, &curregs_mib, sizeof(size_t), &curregs) ||
            !read_mib(jemalloc, &curslabs_mib, sizeof(size_t), &curslabs))
            return false;
        *slack_bytes += (nregs * curslabs - curregs) * size;
    }
    return true;
}

/* True when the epoch is the same after the last row as it was at the first. */
static bool read_rows(const struct binding *jemalloc, const struct key_table *keys,
                      struct memscope_jemalloc_stats *stats) {
    uint64_t epoch_after = 0;

    *stats = (struct memscope_jemalloc_stats){0};
    for (size_t row = 0; row < MEMSCOPE_JEMALLOC_FIELD_COUNT; row++) {
        uint64_t *field = (uint64_t *)((char *)stats + rows[row].offset);

        if (read_mib(jemalloc, &keys->fields[row], rows[row].size, field))
            stats->present |= UINT64_C(1) << row;
    }
    stats->has_slab_slack = read_slab_slack(jemalloc, keys, &stats->slab_slack_bytes);
    return read_mib(jemalloc, &keys->epoch, sizeof epoch_after, &epoch_after) && epoch_after == stats->epoch;
}

static enum memscope_status read_stats(struct memscope_jemalloc_stats *stats, bool advance) {
    struct key_table local = {0};
    const struct key_table *keys = resolved(&local);
    struct binding jemalloc = bound();
    uint64_t epoch = 1; /* any value written advances it */

    *stats = (struct memscope_jemalloc_stats){0};
    if (keys->unsupported || !jemalloc.by_mib)
        return MEMSCOPE_UNSUPPORTED;
    if (advance) {
        int error = jemalloc.by_mib(keys->epoch.parts, keys->epoch.length, NULL, NULL, &epoch, sizeof epoch);

        if (error != 0)
            return error == EAGAIN ? MEMSCOPE_NO_MEMORY : memscope_status_of_errno(error);
    }
    if (!read_rows(&jemalloc, keys, stats) && !read_rows(&jemalloc, keys, stats))
        stats->mixed_epochs = true;
    return MEMSCOPE_OK;
}

enum memscope_status memscope_jemalloc_read_stats(struct memscope_jemalloc_stats *stats) {
    return read_stats(stats, true);
}

enum memscope_status memscope_jemalloc_read_cached_stats(struct memscope_jemalloc_stats *stats) {
    return read_stats(stats, false);
}

const char *memscope_jemalloc_unsupported_reason(void) {
    struct key_table local = {0};

    return resolved(&local)->unsupported;
}

#else

bool memscope_jemalloc_bound(void) {
    return false;
}

memscope_mallctl memscope_jemalloc_entry(void) {
    return NULL;
}

const char *memscope_jemalloc_prefix(void) {
    return "";
}

const char *memscope_jemalloc_program_conf(void) {
    return NULL;
}

enum memscope_status memscope_jemalloc_read(const char *key, void *value, size_t size) {
    (void)key, (void)value, (void)size;
    return MEMSCOPE_UNSUPPORTED;
}

bool memscope_jemalloc_serves_malloc(memscope_mallctl by_name, size_t *requested, uint64_t *risen) {
    (void)by_name;
    *requested = 0;
    *risen = 0;
    return false;
}

enum memscope_status memscope_jemalloc_read_stats(struct memscope_jemalloc_stats *stats) {
    *stats = (struct memscope_jemalloc_stats){0};
    return MEMSCOPE_UNSUPPORTED;
}

enum memscope_status memscope_jemalloc_read_cached_stats(struct memscope_jemalloc_stats *stats) {
    return memscope_jemalloc_read_stats(stats);
}

const char *memscope_jemalloc_unsupported_reason(void) {
    return "not supported on this platform";
}

#endif
