#include "kernel/own_children.h"

#include "base/copy.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define MOMENT_NS 1000000
#define MAX_WAIT 500 /* moments */

#define ONE_READING UINT64_C(1)
#define ONE_CHILD (UINT64_C(1) << 16)
#define READINGS (ONE_CHILD - 1)
#define CHILDREN (READINGS << 16)
#define SPOILT UINT64_MAX

/* From the highest bits: the pid of the process that counts (32), children that live (16), readings (16). */
static _Atomic(uint64_t) counts;
static _Atomic(uint32_t) started; /* children so far */

static uint64_t of_this_process(uint64_t value) {
    uint64_t process = (uint64_t)(uint32_t)getpid() << 32;

    return value >> 32 == process >> 32 ? value : process;
}

/* Adds `change` to this process's counts. An end is counted by a negative change, modulo 2^64. */
static void count(uint64_t change) {
    uint64_t before = atomic_load(&counts);

    while (!atomic_compare_exchange_weak(&counts, &before, of_this_process(before) + change))
        continue;
}

static bool await_none(uint64_t which) {
    const struct timespec moment = {0, MOMENT_NS};

    for (int waits = 0; (of_this_process(atomic_load(&counts)) & which) != 0; waits++) {
        if (waits == MAX_WAIT)
            return false;
        nanosleep(&moment, NULL);
    }
    return true;
}

/* In this order: a reading that does not see the child live sees that one was started. */
void memscope_own_child_started(void) {
    count(ONE_CHILD);
    atomic_fetch_add(&started, 1);
}

void memscope_own_child_ended(void) {
    count(-ONE_CHILD);
}

bool memscope_own_children_await(void) {
    return !memscope_is_copy() && await_none(CHILDREN);
}

uint64_t memscope_sharing_reading_begin(void) {
    uint64_t begun = atomic_load(&started);

    count(ONE_READING);
    return !memscope_is_copy() && (of_this_process(atomic_load(&counts)) & CHILDREN) == 0 ? begun : SPOILT;
}

enum memscope_status memscope_sharing_reading_end(uint64_t begun) {
    count(-ONE_READING);
    return atomic_load(&started) == begun ? MEMSCOPE_OK : MEMSCOPE_SHARED;
}

void memscope_sharing_readings_await(void) {
    await_none(READINGS);
}
