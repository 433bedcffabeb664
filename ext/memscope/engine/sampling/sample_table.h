/*
 * The live sampled blocks and their stacks, for an allocator without a profiler of its own.
 *
 * One table per process, mapped at first use and kept, with a fixed capacity: 131,072 live samples (64 GiB at a rate of
 * 2^19) and as many stacks. Inherited by forked children. All functions but the filter take one spin lock, for
 * microseconds, which is also held across a fork. They neither allocate nor touch errno.
 */
#ifndef MEMSCOPE_SAMPLE_TABLE_H
#define MEMSCOPE_SAMPLE_TABLE_H

#include "base/scratch.h"
#include "base/status.h"
#include "sampling/sampled_stack.h"

#include <stdatomic.h>

/* Maps the table, once. MEMSCOPE_NO_MEMORY. */
enum memscope_status memscope_sample_table_open(void);

/* Drops all samples, returns their memory, and continues with another rate. */
void memscope_sample_table_clear(double rate);

void memscope_sample_table_add(uintptr_t address, uint64_t size, const uint64_t *words, unsigned length);

/* A removed sample, to be put back. */
struct memscope_sample {
    uintptr_t address;
    uint64_t size;
    uint32_t stack; /* 0: there was none */
};

struct memscope_sample memscope_sample_table_remove(uintptr_t address);
void memscope_sample_table_put_back(struct memscope_sample sample);

/*
 * Whether this thread is already inside one of these functions: the caller is a signal handler or an atfork hook of
 * another library. Then only remove_later may be called.
 */
bool memscope_sample_table_is_held(void);

/*
 * Call it before the block is freed; the next call removes the block. If too many wait, it stays until its address is
 * reused.
 */
void memscope_sample_table_remove_later(uintptr_t address);

/* Copies the table, and estimates. MEMSCOPE_NO_MEMORY. */
enum memscope_status memscope_sample_table_read(struct memscope_scratch *scratch,
                                                struct memscope_sampled_stacks *stacks);

/* Its resident bytes; 0 before it was opened. Takes no lock. */
size_t memscope_sample_table_bytes(void);

/*
 * Around a fork: no other thread holds the lock in the child. Other libraries' handlers run between these two and may
 * allocate: this thread holds the table meanwhile. No effect for a signal handler that forks while this thread holds
 * it.
 */
void memscope_sample_table_before_fork(void);
void memscope_sample_table_after_fork(void);

/* ---- the filter: whether an address may be that of a sample --------------------------------------------------- */

#define MEMSCOPE_FILTER_BITS 17
#define MEMSCOPE_FILTER_GROUP 4    /* counters per bit */
#define MEMSCOPE_FILTER_WORDS 1024 /* of 32 such bits */

/*
 * How many live samples have each hash, and a bit for each group of these where there are any. Every free reads a bit:
 * these 4 KiB stay in the first-level cache, where the 256 KiB of counters do not (a loop of strings took 6 % longer
 * with them alone). All 0 without a table.
 */
extern _Atomic(uint16_t) *memscope_sample_filter;
extern _Atomic(uint32_t) memscope_sample_filter_bits[MEMSCOPE_FILTER_WORDS];

static inline uint32_t memscope_address_hash(uintptr_t address) {
    return (uint32_t)((uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

/* The index of an address's counter. Its bit is number index / MEMSCOPE_FILTER_GROUP. */
static inline uint32_t memscope_filter_index(uintptr_t address) {
    return memscope_address_hash(address) >> (32 - MEMSCOPE_FILTER_BITS);
}

/* No lock: a thread that frees a block has seen its allocation. False for NULL. A false positive costs a search. */
static inline __attribute__((always_inline)) bool memscope_may_be_sample(uintptr_t address) {
    uint32_t index = memscope_filter_index(address), bit = index / MEMSCOPE_FILTER_GROUP;
    uint32_t bits = atomic_load_explicit(&memscope_sample_filter_bits[bit / 32], memory_order_relaxed);

    return __builtin_expect(bits >> bit % 32 & 1, 0) &&
           atomic_load_explicit(&memscope_sample_filter[index], memory_order_relaxed) != 0;
}

#endif
