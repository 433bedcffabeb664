/*
 * A thread that does nothing but map, touch and unmap memory, and never takes the GVL: it waits only for the kernel's
 * mmap_lock, which a reader of the process's mappings holds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#define BYTES (64 * 1024)

static pthread_t thread;
static atomic_bool stop;
static _Atomic uint64_t longest;

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *map_and_unmap(void *unused) {
    while (!atomic_load(&stop)) {
        uint64_t start = now_ns(), took;
        volatile char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (block == MAP_FAILED)
            return unused;
        *block = 1;
        munmap((void *)block, BYTES);
        took = now_ns() - start;
        if (took > atomic_load(&longest))
            atomic_store(&longest, took);
    }
    return unused;
}

int floor_stall_start(void) {
    return pthread_create(&thread, NULL, map_and_unmap, NULL);
}

void floor_stall_stop(void) {
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
}

/* Nanoseconds of the longest round since this was last asked. */
uint64_t floor_stall_longest(void) {
    return atomic_exchange(&longest, 0);
}
