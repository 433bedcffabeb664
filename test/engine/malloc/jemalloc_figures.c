/*
 * Exercises jemalloc.c in a program of its own, with a jemalloc preloaded or none:
 *
 *   figures   malloc_stats_print's JSON on the first line, what the engine read right after that on the second
 *   arenas    malloc_stats_print's JSON, then the arenas, then the size classes of each and of all
 *   quiet     by how much this thread's thread.allocated rises over 100 readings: {"allocated":0}
 *   mixed     how many of 10 readings say that someone else advanced the epoch meanwhile
 *   mixed_arenas  the same for readings of the arenas and of the size classes
 *   absent    the status of a reading, and the reason
 */
#include "malloc/jemalloc.h"
#include "malloc/jemalloc_arenas.h"
#include "malloc/jemalloc_keys.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 24
#define LARGEST_BLOCK ((size_t)9 << 20) /* above opt.oversize_threshold */
#define BLOCKS 4000

extern __attribute__((weak)) void malloc_stats_print(void (*write)(void *, const char *), void *context,
                                                     const char *options);

/* Linked with --wrap, so that the engine can read the same epoch that malloc_stats_print took. */
enum memscope_status __real_memscope_jemalloc_advance_epoch(const struct memscope_jemalloc_binding *jemalloc);
enum memscope_status __wrap_memscope_jemalloc_advance_epoch(const struct memscope_jemalloc_binding *jemalloc);
static bool epoch_stays;

enum memscope_status __wrap_memscope_jemalloc_advance_epoch(const struct memscope_jemalloc_binding *jemalloc) {
    return epoch_stays ? MEMSCOPE_OK : __real_memscope_jemalloc_advance_epoch(jemalloc);
}

/* Static: a block allocated for the text would itself be in the figures. */
static char printed[16 << 20];
static size_t printed_length;

static void keep(void *context, const char *text) {
    size_t length = strlen(text);

    (void)context;
    if (length >= sizeof printed - printed_length)
        abort();
    memcpy(printed + printed_length, text, length + 1);
    printed_length += length;
}

static pthread_barrier_t all_allocated;

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

/* Every second thread stays, asleep, so that its arena has a thread with a cache. */
static void *allocate_and_stay(void *stays) {
    fragment(NULL);
    pthread_barrier_wait(&all_allocated);
    while (stays)
        pause();
    return NULL;
}

/* Not static: the compiler may otherwise drop a block that nobody reads. */
void *largest;

/* Threads that live at the same time are spread over the arenas. */
static void fragment_in_threads(void) {
    pthread_t threads[THREADS];

    pthread_barrier_init(&all_allocated, NULL, THREADS + 1);
    for (size_t index = 0; index < THREADS; index++)
        pthread_create(&threads[index], NULL, allocate_and_stay, index % 2 ? &all_allocated : NULL);
    pthread_barrier_wait(&all_allocated);
    for (size_t index = 0; index < THREADS; index += 2)
        pthread_join(threads[index], NULL);
    fragment(NULL);
    largest = malloc(LARGEST_BLOCK);
    memset(largest, 1, 16);
}

#define STAT(field, key, type, unit, kind, since)                                                                      \
    if (memscope_jemalloc_has(stats, MEMSCOPE_JEMALLOC_HAS_##field))                                                   \
        printf("\"%s\":%llu,", key, (unsigned long long)stats->field);

static void print_stats(const struct memscope_jemalloc_stats *stats) {
    printf("{");
#include "malloc/jemalloc_stats.def"
    printf("\"slab_slack_bytes\":%lld}\n", stats->has_slab_slack ? (long long)stats->slab_slack_bytes : -1LL);
}

/* Prints malloc_stats_print's text as one line. */
static void print_printed(void) {
    for (char *character = printed; *character; character++) {
        if (*character == '\n')
            *character = ' ';
    }
    puts(printed);
}

static int figures(void) {
    static struct memscope_jemalloc_stats stats;

    fragment_in_threads();
    if (memscope_jemalloc_read_stats(&stats) != MEMSCOPE_OK)
        return 1;
    malloc_stats_print(keep, NULL, "Jdax");
    epoch_stays = true;
    if (memscope_jemalloc_read_stats(&stats) != MEMSCOPE_OK)
        return 1;
    print_printed();
    print_stats(&stats);
    return 0;
}

static const char *separated(const char **separator) {
    const char *now = *separator;

    *separator = ",";
    return now;
}

/* Prints the numbers of a group under upstream's keys, as pairs of a JSON object. */
static void print_row(enum memscope_jemalloc_group group, const struct memscope_jemalloc_row *row) {
    size_t count;
    const struct memscope_jemalloc_key *keys = memscope_jemalloc_keys(group, &count);
    const char *separator = "";

    for (size_t index = 0; index < count; index++)
        if (row->known >> index & 1)
            printf("%s\"%s\":%lld", separated(&separator), keys[index].key, (long long)row->values[index]);
}

/* Up to 5.3.0, malloc_stats_print's JSON has wrong numbers for mutexes, so each is read under its full name too. */
static void print_mutex_by_name(size_t arena, const char *mutex) {
    size_t count;
    const struct memscope_jemalloc_key *keys = memscope_jemalloc_keys(MEMSCOPE_JEMALLOC_MUTEX, &count);
    const char *separator = "";

    for (size_t index = 0; index < count; index++) {
        uint64_t value = 0; /* wide enough for either size; the machine is little-endian */
        char key[128];

        snprintf(key, sizeof key, "stats.arenas.%zu.mutexes.%s.%s", arena, mutex, keys[index].key);
        if (memscope_jemalloc_read(key, &value, keys[index].size) != MEMSCOPE_OK)
            abort();
        printf("%s\"%s\":%llu", separated(&separator), keys[index].key, (unsigned long long)value);
    }
}

static void print_mutexes(const struct memscope_jemalloc_arena *arena) {
    size_t count;
    const char *const *names = memscope_jemalloc_mutex_names(&count);
    const char *separator = "";

    for (size_t index = 0; index < count; index++) {
        if (arena->mutexes[index].known == 0)
            continue;
        printf("%s\"%s\":{\"read\":{", separated(&separator), names[index]);
        print_row(MEMSCOPE_JEMALLOC_MUTEX, &arena->mutexes[index]);
        printf("},\"by_name\":{");
        print_mutex_by_name(arena->index, names[index]);
        printf("}}");
    }
}

static void print_arena(const struct memscope_jemalloc_arena *arena) {
    printf("{\"index\":%u,\"huge\":%s,\"name\":\"%s\",\"numbers\":{", arena->index, arena->huge ? "true" : "false",
           arena->name);
    print_row(MEMSCOPE_JEMALLOC_ARENA, &arena->row);
    printf("},\"mutexes\":{");
    print_mutexes(arena);
    printf("}}");
}

static void print_class(const struct memscope_jemalloc_class *class) {
    printf("{\"large\":%s,\"size\":{", class->large ? "true" : "false");
    print_row(class->large ? MEMSCOPE_JEMALLOC_EXTENT : MEMSCOPE_JEMALLOC_SLAB, &class->size);
    printf("},\"numbers\":{");
    print_row(class->large ? MEMSCOPE_JEMALLOC_LARGE : MEMSCOPE_JEMALLOC_BIN, &class->statistics);
    printf("}}");
}

/* Prints the classes of one arena, as a pair of the JSON object; nothing if there is no such arena. */
static void print_classes_of(unsigned arena, const char *name) {
    struct memscope_jemalloc_classes classes;
    struct memscope_scratch scratch;

    if (memscope_scratch_open(&scratch) != MEMSCOPE_OK)
        abort();
    if (memscope_jemalloc_read_classes(&scratch, false, arena, &classes) == MEMSCOPE_OK) {
        printf("\"%s\":[", name);
        for (size_t index = 0; index < classes.count; index++) {
            printf("%s", index ? "," : "");
            print_class(&classes.list[index]);
        }
        printf("],");
    }
    memscope_scratch_close(&scratch);
}

static int arenas(void) {
    static struct memscope_jemalloc_arenas arenas;
    struct memscope_scratch scratch;

    fragment_in_threads();
    if (memscope_scratch_open(&scratch) != MEMSCOPE_OK ||
        memscope_jemalloc_read_arenas(&scratch, true, &arenas) != MEMSCOPE_OK)
        return 1;
    malloc_stats_print(keep, NULL, "J");
    if (memscope_jemalloc_read_arenas(&scratch, false, &arenas) != MEMSCOPE_OK || arenas.mixed_epochs)
        return 1;
    print_printed();
    printf("{\"page\":%llu,\"limit\":%u,\"arenas\":[", (unsigned long long)arenas.page_bytes, arenas.narenas);
    for (size_t index = 0; index < arenas.count; index++) {
        printf("%s", index ? "," : "");
        print_arena(&arenas.list[index]);
    }
    printf("]}\n{");
    for (unsigned index = 0; index < arenas.narenas + 3; index++) {
        char name[32];

        snprintf(name, sizeof name, "%u", index);
        print_classes_of(index, name);
    }
    print_classes_of(MEMSCOPE_ALL_ARENAS, "merged");
    printf("\"all\":true}\n");
    memscope_scratch_close(&scratch);
    return 0;
}

/* Reads the arenas and the size classes, each at an epoch of its own. */
static void read_arenas_and_classes(int *mixed_arenas, int *mixed_classes) {
    static struct memscope_jemalloc_arenas all;
    static struct memscope_jemalloc_classes classes;
    struct memscope_scratch scratch;

    if (memscope_scratch_open(&scratch) != MEMSCOPE_OK)
        abort();
    memscope_jemalloc_read_arenas(&scratch, true, &all);
    memscope_jemalloc_read_classes(&scratch, true, MEMSCOPE_ALL_ARENAS, &classes);
    memscope_scratch_close(&scratch);
    if (mixed_arenas)
        *mixed_arenas += all.mixed_epochs;
    if (mixed_classes)
        *mixed_classes += classes.mixed_epochs;
}

static int quiet(void) {
    struct memscope_jemalloc_stats stats;
    uint64_t before = 0, after = 0;

    memscope_jemalloc_read_stats(&stats);
    memscope_jemalloc_read("thread.allocated", &before, sizeof before);
    for (int reading = 0; reading < 100; reading++) {
        memscope_jemalloc_read_stats(&stats);
        read_arenas_and_classes(NULL, NULL);
    }
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

static int mixed_arenas(void) {
    int arenas_count = 0, classes_count = 0;

    for (int reading = 0; reading < 10; reading++)
        read_arenas_and_classes(&arenas_count, &classes_count);
    printf("{\"arenas\":%d,\"classes\":%d}\n", arenas_count, classes_count);
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
    if (strcmp(mode, "arenas") == 0)
        return arenas();
    if (strcmp(mode, "mixed_arenas") == 0)
        return mixed_arenas();
    if (strcmp(mode, "quiet") == 0)
        return quiet();
    if (strcmp(mode, "mixed") == 0)
        return mixed();
    return absent();
}
