/*
 * Threads that allocate, write to and free blocks of 16 B to 16 KiB, and never take the GVL. Counts the blocks that
 * they replace, and notes the longest time that a free and a malloc took.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define BLOCKS 512
#define MAXIMUM_THREADS 64

static pthread_t threads[MAXIMUM_THREADS];
static int thread_count;
static atomic_bool stop;
static _Atomic uint64_t rounds, longest;

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void replace(char **block, unsigned *state) {
    uint64_t start = now_ns(), took;
    size_t size = 16 + (size_t)rand_r(state) % 16384;

    free(*block);
    *block = malloc(size);
    took = now_ns() - start;
    if (*block)
        (*block)[0] = (*block)[size - 1] = 1;
    if (took > atomic_load_explicit(&longest, memory_order_relaxed))
        atomic_store_explicit(&longest, took, memory_order_relaxed);
}

static void *allocate(void *seed) {
    char *blocks[BLOCKS] = {NULL};
    unsigned state = (unsigned)(uintptr_t)seed;

    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (int round = 0; round < 256; round++)
            replace(&blocks[(size_t)rand_r(&state) % BLOCKS], &state);
        atomic_fetch_add_explicit(&rounds, 256, memory_order_relaxed);
    }
    for (int index = 0; index < BLOCKS; index++)
        free(blocks[index]);
    return NULL;
}

/* 0, or an errno. */
int floor_load_start(int count) {
    for (; thread_count < count && thread_count < MAXIMUM_THREADS; thread_count++) {
        int error = pthread_create(&threads[thread_count], NULL, allocate, (void *)(uintptr_t)(thread_count + 1));

        if (error)
            return error;
    }
    return 0;
}

void floor_load_stop(void) {
    atomic_store(&stop, 1);
    while (thread_count > 0)
        pthread_join(threads[--thread_count], NULL);
}

/* Blocks replaced since this was last asked. */
uint64_t floor_load_rounds(void) {
    return atomic_exchange(&rounds, 0);
}

/* Nanoseconds of the longest free and malloc since this was last asked. */
uint64_t floor_load_longest(void) {
    return atomic_exchange(&longest, 0);
}
