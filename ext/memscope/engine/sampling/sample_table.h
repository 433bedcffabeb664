/*
 * The live sampled blocks and their stacks, for an allocator without a profiler of its own.
 *
 * One table per process, mapped at first use and kept, with a fixed capacity: 131,072 live samples (64 GiB at a rate of
 * 2^19) and as many stacks. Inherited by forked children. Functions that use the table take one spin lock, mostly for
 * microseconds, and for milliseconds while stacks are shortened (stack_table.h). The lock is also held across a fork.
 * is_held, remove_later and the filter take no lock. No function here allocates, and those that a sampled malloc or
 * free calls leave errno alone.
 */
#pragma once

#include "base/scratch.h"
#include "base/status.h"
#include "sampling/sampled_stack.h"

#include <stdatomic.h>

/* Maps the table unless it is mapped already. Returns MEMSCOPE_NO_MEMORY if it cannot be mapped. */
enum memscope_status memscope_sample_table_open(void);

/* Drops all samples, gives their memory back to the kernel, and continues at this rate. */
void memscope_sample_table_clear(double rate);

/* Drops all samples, and lets every address through the filter until the table is cleared. */
void memscope_sample_table_admit_all(void);

void memscope_sample_table_add(uintptr_t address, uint64_t size, const uint64_t *words, unsigned length);

/* A removed sample, which can be put back. */
struct memscope_sample {
    uintptr_t address;
    uint64_t size;
    uint32_t stack;     /* its number, 0 if there was no sample */
    uint32_t numbering; /* of stacks, at the time of the removal */
};

struct memscope_sample memscope_sample_table_remove(uintptr_t address);

/* Drops and counts the sample if the stacks have been renumbered since it was removed. */
void memscope_sample_table_put_back(struct memscope_sample sample);

/*
 * Returns true if this thread is already inside a function that takes the lock. The caller is then a signal handler or
 * another library's atfork handler, and may call remove_later only.
 */
bool memscope_sample_table_is_held(void);

/*
 * Queues the removal of a sample until the lock is next taken. Call before the block is freed. If too many
 * removals are queued, the sample stays until its address is reused.
 */
void memscope_sample_table_remove_later(uintptr_t address);

/*
 * Copies the samples and the stacks into scratch, and estimates from the copy. Returns MEMSCOPE_NO_MEMORY if scratch is
 * exhausted.
 */
enum memscope_status memscope_sample_table_read(struct memscope_scratch *scratch,
                                                struct memscope_sampled_stacks *stacks);

/* The table's resident bytes, 0 before it is opened. Takes no lock. */
size_t memscope_sample_table_bytes(void);

/*
 * Call around a fork, so that no other thread holds the lock in the child. Other libraries' atfork handlers that run
 * between these two may allocate while this thread holds the lock. No effect if a signal handler forks while this
 * thread holds the lock.
 */
void memscope_sample_table_before_fork(void);
void memscope_sample_table_after_fork(void);

/* ---- the filter of addresses that may be those of samples -------------------------------------------------------- */

#define MEMSCOPE_FILTER_BITS 17
#define MEMSCOPE_FILTER_GROUP 4    /* counters per bit */
#define MEMSCOPE_FILTER_WORDS 1024 /* of 32 bits each */

/*
 * A counter of live samples for each hash, and one bit per group of counters, set while any of the group is not 0.
 * Every free reads a bit: the 4 KiB of bits stay in the first-level cache, while the 256 KiB of counters do not (with
 * the counters alone, a loop that makes strings took 6 % longer). All 0 without a table.
 */
extern _Atomic(uint16_t) *memscope_sample_filter;
extern _Atomic(uint32_t) memscope_sample_filter_bits[MEMSCOPE_FILTER_WORDS];

static inline uint32_t memscope_address_hash(uintptr_t address) {
    return (uint32_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

/* The index of an address's counter. Its bit has the number index / MEMSCOPE_FILTER_GROUP. */
static inline uint32_t memscope_filter_index(uintptr_t address) {
    return memscope_address_hash(address) >> (32 - MEMSCOPE_FILTER_BITS);
}

/*
 * Needs no lock, since a thread that frees a block has seen its allocation. A false positive, possible also for NULL,
 * costs a search.
 */
static inline __attribute__((always_inline)) bool memscope_may_be_sample(uintptr_t address) {
    uint32_t index = memscope_filter_index(address), bit = index / MEMSCOPE_FILTER_GROUP;
    uint32_t bits = atomic_load_explicit(&memscope_sample_filter_bits[bit / 32], memory_order_relaxed);

    return __builtin_expect(bits >> bit % 32 & 1, 0) &&
           atomic_load_explicit(&memscope_sample_filter[index], memory_order_relaxed) != 0;
}
