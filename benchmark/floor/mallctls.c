/*
 * What Memscope.snapshot is measured against under jemalloc: advancing the epoch once and reading, by mibs resolved
 * before, every key that the snapshot reads.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

int mallctlnametomib(const char *name, size_t *mib, size_t *length);
int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_length, void *new, size_t new_length);

#define MIB_LENGTH 8

struct key {
    size_t mib[MIB_LENGTH];
    size_t length;
    size_t size;
};

#define STAT(field, key, type, unit, kind, since) {key, sizeof(type)},
static const struct {
    const char *name;
    size_t size;
} rows[] = {
#include "malloc/jemalloc_stats.def"
};
#define ROWS (sizeof rows / sizeof *rows)

static struct key keys[ROWS], nbins, bin_size, bin_nregs, bin_curregs, bin_curslabs;

static void resolve(struct key *key, const char *name, size_t size) {
    key->length = MIB_LENGTH;
    key->size = mallctlnametomib(name, key->mib, &key->length) == 0 ? size : 0;
}

static uint64_t read_key(const struct key *key) {
    uint64_t value = 0;
    size_t length = key->size;

    if (length)
        mallctlbymib(key->mib, key->length, &value, &length, NULL, 0);
    return value;
}

static uint64_t read_bin(struct key *key, size_t position, size_t bin) {
    key->mib[position] = bin;
    return read_key(key);
}

static uint64_t read_all(void) {
    uint64_t sum = 0, epoch = 1;
    uint64_t bins;

    mallctlbymib(keys[0].mib, keys[0].length, NULL, NULL, &epoch, sizeof epoch);
    for (size_t row = 0; row < ROWS; row++)
        sum += read_key(&keys[row]);
    bins = read_key(&nbins);
    for (size_t bin = 0; bin < bins; bin++)
        sum += read_bin(&bin_size, 2, bin) *
               (read_bin(&bin_nregs, 2, bin) * read_bin(&bin_curslabs, 4, bin) - read_bin(&bin_curregs, 4, bin));
    return sum;
}

void floor_mallctls_resolve(void) {
    for (size_t row = 0; row < ROWS; row++)
        resolve(&keys[row], rows[row].name, rows[row].size);
    resolve(&nbins, "arenas.nbins", sizeof(unsigned));
    resolve(&bin_size, "arenas.bin.0.size", sizeof(size_t));
    resolve(&bin_nregs, "arenas.bin.0.nregs", sizeof(uint32_t));
    resolve(&bin_curregs, "stats.arenas.4096.bins.0.curregs", sizeof(size_t));
    resolve(&bin_curslabs, "stats.arenas.4096.bins.0.curslabs", sizeof(size_t));
}

/* Nanoseconds that `count` readings took. */
uint64_t floor_mallctls(int count) {
    struct timespec start, end;
    volatile uint64_t sum = 0;

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int turn = 0; turn < count; turn++)
        sum += read_all();
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (uint64_t)(end.tv_sec - start.tv_sec) * 1000000000u + (uint64_t)(end.tv_nsec - start.tv_nsec);
}
