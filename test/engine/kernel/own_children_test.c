/* Readings of what is private, and children that spoil them: each order of events, a fork, and many threads. */
#include "../expect.h"
#include "kernel/own_children.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_orders(void) {
    uint64_t before = memscope_sharing_reading_begin(), beside, after;

    memscope_own_child_started();
    beside = memscope_sharing_reading_begin();
    EXPECT(memscope_sharing_reading_end(before) == MEMSCOPE_SHARED);
    EXPECT(!memscope_own_children_await());
    memscope_own_child_ended();
    EXPECT(memscope_sharing_reading_end(beside) == MEMSCOPE_SHARED);
    EXPECT(memscope_own_children_await());
    after = memscope_sharing_reading_begin();
    EXPECT(memscope_sharing_reading_end(after) == MEMSCOPE_OK);
    before = memscope_sharing_reading_begin();
    memscope_own_child_started();
    memscope_own_child_ended(); /* lived within the reading */
    EXPECT(memscope_sharing_reading_end(before) == MEMSCOPE_SHARED);
}

/* The children and readings of its parent are not those of a process that the host forks. */
static void check_fork(void) {
    uint64_t reading = memscope_sharing_reading_begin();
    pid_t forked;
    int status;

    memscope_own_child_started();
    forked = fork();
    if (forked == 0) {
        memscope_sharing_readings_await();
        reading = memscope_sharing_reading_begin();
        _exit(memscope_sharing_reading_end(reading) == MEMSCOPE_OK && memscope_own_children_await() ? 0 : 1);
    }
    EXPECT(forked > 0 && waitpid(forked, &status, 0) == forked && status == 0);
    memscope_own_child_ended();
    EXPECT(memscope_sharing_reading_end(reading) == MEMSCOPE_SHARED);
}

#define THREADS 4
#define TURNS 2000

static atomic_int alive, seen_alive;

/* Where a reading ends well, no child was alive in between. */
static void *read_often(void *unused) {
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t begun = memscope_sharing_reading_begin();
        bool saw = atomic_load(&alive) > 0;

        if (memscope_sharing_reading_end(begun) == MEMSCOPE_OK && saw)
            atomic_fetch_add(&seen_alive, 1);
    }
    return unused;
}

static void *fork_often(void *unused) {
    for (int turn = 0; turn < TURNS; turn++) {
        memscope_own_child_started();
        atomic_fetch_add(&alive, 1);
        atomic_fetch_sub(&alive, 1);
        memscope_own_child_ended();
    }
    return unused;
}

int main(void) {
    pthread_t threads[THREADS];
    uint64_t last;

    check_orders();
    check_fork();
    for (size_t index = 0; index < THREADS; index++)
        EXPECT(pthread_create(&threads[index], NULL, index % 2 ? fork_often : read_often, NULL) == 0);
    for (size_t index = 0; index < THREADS; index++)
        EXPECT(pthread_join(threads[index], NULL) == 0);
    EXPECT(seen_alive == 0);
    last = memscope_sharing_reading_begin();
    EXPECT(memscope_sharing_reading_end(last) == MEMSCOPE_OK);
    return 0;
}
