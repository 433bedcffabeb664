/*
 * Prints malloc_info's own XML, and on the last line what the engine read. malloc_info is called before and after the
 * engine's reading and must say the same both times: the reading itself changes nothing.
 */
#include "malloc/glibc_info.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 20
#define BLOCKS 3000

/* Static: a block allocated for the text would itself be in the figures. */
static char before[1 << 20], after[1 << 20];
static size_t filled;
static pthread_barrier_t all_allocated;

static void *fragment(void *stays) {
    static _Thread_local void *blocks[BLOCKS];

    for (size_t index = 0; index < BLOCKS; index++)
        blocks[index] = malloc(index % 7 == 0 ? 20 : 16 + index * 31 % 3000);
    for (size_t index = 0; index < BLOCKS; index++)
        if (index % 3 != 0)
            free(blocks[index]);
    if (!stays)
        return NULL;
    pthread_barrier_wait(&all_allocated);
    for (;;)
        pause();
}

static ssize_t keep(void *text, const char *more, size_t length) {
    if (length >= sizeof before - filled)
        abort();
    memcpy((char *)text + filled, more, length);
    filled += length;
    ((char *)text)[filled] = '\0';
    return (ssize_t)length;
}

static void describe(char *text) {
    char buffer[4096];
    FILE *stream = fopencookie(text, "w", (cookie_io_functions_t){.write = keep});

    if (!stream)
        abort();
    filled = 0;
    setvbuf(stream, buffer, _IOFBF, sizeof buffer);
    malloc_info(0, stream);
    fclose(stream);
}

static void print_number(const char *name, uint64_t number) {
    printf(",\"%s\":%llu", name, (unsigned long long)number);
}

static void print_arena(const struct memscope_glibc_arena *arena) {
    printf("{\"index\":%d", (int)arena->index);
    if (arena->fast_bytes != MEMSCOPE_UNKNOWN) {
        print_number("total fast count", arena->fast_blocks);
        print_number("total fast size", arena->fast_bytes);
    }
    print_number("total rest count", arena->free_blocks);
    print_number("total rest size", arena->free_bytes);
    print_number("system current size", arena->system_bytes);
    print_number("system max size", arena->system_max_bytes);
    print_number("aspace total size", arena->address_space_bytes);
    print_number("aspace mprotect size", arena->writable_bytes);
    if (arena->heaps != MEMSCOPE_UNKNOWN)
        print_number("aspace subheaps size", arena->heaps);
}

static void print_sizes(const struct memscope_glibc_free_size *sizes, size_t count) {
    printf(",\"sizes\":[");
    for (size_t index = 0; index < count; index++)
        printf("%s[\"%s\",%llu,%llu,%llu,%llu]", index ? "," : "", sizes[index].unsorted ? "unsorted" : "size",
               (unsigned long long)sizes[index].from_bytes, (unsigned long long)sizes[index].to_bytes,
               (unsigned long long)sizes[index].bytes, (unsigned long long)sizes[index].blocks);
    printf("]}");
}

static void print_arenas(const struct memscope_glibc_arenas *arenas) {
    printf("{\"totals\":");
    print_arena(&arenas->merged);
    print_number("total mmap count", arenas->mmapped_blocks);
    print_number("total mmap size", arenas->mmapped_bytes);
    printf("},\"arenas\":[");
    for (size_t index = 0; index < arenas->count; index++) {
        const struct memscope_glibc_arena *arena = &arenas->list[index];

        printf("%s", index ? "," : "");
        print_arena(arena);
        print_sizes(&arenas->sizes[arena->first_size], arena->size_count);
    }
    printf("]}\n");
}

int main(void) {
    struct memscope_glibc_arenas arenas;
    struct memscope_scratch list, sizes;
    pthread_t thread;
    void *volatile mapped = malloc(9000000); /* volatile: the compiler may otherwise drop it */

    pthread_barrier_init(&all_allocated, NULL, THREADS + 1);
    for (size_t index = 0; index < THREADS; index++)
        pthread_create(&thread, NULL, fragment, &all_allocated);
    pthread_barrier_wait(&all_allocated);
    fragment(NULL);
    describe(before); /* takes the stream's block from the free lists, and leaves it in this thread's cache */
    describe(before);
    if (memscope_scratch_open(&list) != MEMSCOPE_OK || memscope_scratch_open(&sizes) != MEMSCOPE_OK ||
        memscope_glibc_read_arenas(&(struct memscope_glibc_arenas_memory){&list, &sizes}, &arenas) != MEMSCOPE_OK)
        return 1;
    describe(after);
    if (strcmp(before, after) != 0)
        return 2;
    puts(before);
    print_arenas(&arenas);
    free(mapped);
    return 0;
}
