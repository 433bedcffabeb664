/*
 * Exercises engine/jemalloc.c in a program of its own, with a jemalloc preloaded or none:
 *
 *   figures   malloc_stats_print's JSON on the first line, what the engine read right after it on the second
 *   quiet     by how much this thread's thread.allocated rises over 100 readings: {"allocated":0}
 *   mixed     how many of 10 readings say that someone else advanced the epoch in between
 *   absent    the status of a reading, and the reason
 */
#include "jemalloc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define BLOCKS 20000

extern __attribute__((weak)) void malloc_stats_print(void (*write)(void *, const char *), void *context,
                                                     const char *options);

/* Static: a block allocated for the text would itself be in the figures. */
static char printed[4 << 20];
static size_t printed_length;

static void keep(void *context, const char *text) {
    size_t length = strlen(text);

    (void)context;
    if (length >= sizeof printed - printed_length)
        abort();
    memcpy(printed + printed_length, text, length + 1);
    printed_length += length;
}

static void *fragment(void *context) {
    static _Thread_local void *blocks[BLOCKS];

    for (size_t index = 0; index < BLOCKS; index++) {
        blocks[index] = malloc(index % 97 == 0 ? 20000 + index : 16 + index % 3000);
        memset(blocks[index], 1, 16);
    }
    for (size_t index = 0; index < BLOCKS; index++) {
        if (index % 13 != 0)
            free(blocks[index]);
    }
    return context;
}

static void fragment_in_threads(void) {
    pthread_t threads[THREADS];

    for (size_t index = 0; index < THREADS; index++)
        pthread_create(&threads[index], NULL, fragment, NULL);
    for (size_t index = 0; index < THREADS; index++)
        pthread_join(threads[index], NULL);
    fragment(NULL);
}

#define STAT(field, key, type, unit, kind, since)                                                                      \
    if (memscope_jemalloc_has(stats, MEMSCOPE_JEMALLOC_HAS_##field))                                                   \
        printf("\"%s\":%llu,", key, (unsigned long long)stats->field);

static void print_stats(const struct memscope_jemalloc_stats *stats) {
    printf("{");
#include "jemalloc_stats.def"
    printf("\"slab_slack_bytes\":%lld}\n", stats->has_slab_slack ? (long long)stats->slab_slack_bytes : -1LL);
}
#undef STAT

static int figures(void) {
    static struct memscope_jemalloc_stats stats;

    fragment_in_threads();
    if (memscope_jemalloc_read_stats(&stats) != MEMSCOPE_OK)
        return 1;
    malloc_stats_print(keep, NULL, "Jdax");
    if (memscope_jemalloc_read_cached_stats(&stats) != MEMSCOPE_OK)
        return 1;
    for (char *character = printed; *character; character++) {
        if (*character == '\n')
            *character = ' ';
    }
    puts(printed);
    print_stats(&stats);
    return 0;
}

static int quiet(void) {
    struct memscope_jemalloc_stats stats;
    uint64_t before = 0, after = 0;

    memscope_jemalloc_read_stats(&stats);
    memscope_jemalloc_read("thread.allocated", &before, sizeof before);
    for (int reading = 0; reading < 100; reading++)
        memscope_jemalloc_read_stats(&stats);
    memscope_jemalloc_read("thread.allocated", &after, sizeof after);
    printf("{\"allocated\":%llu}\n", (unsigned long long)(after - before));
    return 0;
}

static int mixed(void) {
    struct memscope_jemalloc_stats stats;
    uint64_t epoch = 0;
    int count = 0;

    for (int reading = 0; reading < 10; reading++) {
        memscope_jemalloc_read_stats(&stats);
        count += stats.mixed_epochs;
    }
    memscope_jemalloc_read("epoch", &epoch, sizeof epoch);
    printf("{\"mixed\":%d,\"advanced_since\":%llu}\n", count, (unsigned long long)(epoch - stats.epoch));
    return 0;
}

static int absent(void) {
    struct memscope_jemalloc_stats stats;
    enum memscope_status status = memscope_jemalloc_read_stats(&stats);
    const char *reason = memscope_jemalloc_unsupported_reason();

    printf("{\"unsupported\":%s,\"present\":%llu,\"reason\":\"%s\"}\n",
           status == MEMSCOPE_UNSUPPORTED ? "true" : "false", (unsigned long long)stats.present, reason ? reason : "");
    return 0;
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";

    if (strcmp(mode, "figures") == 0)
        return figures();
    if (strcmp(mode, "quiet") == 0)
        return quiet();
    if (strcmp(mode, "mixed") == 0)
        return mixed();
    return absent();
}
