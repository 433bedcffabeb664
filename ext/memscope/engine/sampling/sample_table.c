#include "sampling/sample_table.h"

#include "base/protections.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define SAMPLE_LIMIT (1u << 17)
#define STACK_LIMIT (1u << 17)
#define SLOTS (1u << 18) /* in each of the two hash tables: at most half of them are taken */
#define WORD_LIMIT (1u << 23)
#define DEFERRED_LIMIT 64

struct stack {
    uint64_t hash;
    uint32_t first_word, length;
    double allocated_bytes, allocated_objects;
};

/* The hash tables hold indexes + 1 into the dense arrays `samples` and `stacks`, which a reading copies. */
static struct table {
    _Atomic(uint16_t) filter[1u << MEMSCOPE_FILTER_BITS];
    uint32_t sample_slots[SLOTS], stack_slots[SLOTS];
    struct memscope_sample samples[SAMPLE_LIMIT];
    struct stack stacks[STACK_LIMIT];
    uint64_t words[WORD_LIMIT];
} * table;

static uint32_t sample_count, stack_count, word_count;
static uint64_t dropped_samples, lost_frees;
static double sampling_rate;
static _Atomic(uintptr_t) deferred[DEFERRED_LIMIT];
static atomic_bool any_deferred;
static atomic_flag locked = ATOMIC_FLAG_INIT;
static __thread volatile bool held; /* this thread holds the lock, or waits for it */
static bool locked_for_fork;
static _Atomic(uint16_t) no_filter[1u << MEMSCOPE_FILTER_BITS]; /* never written: no memory of its own */

_Atomic(uint16_t) *memscope_sample_filter = no_filter;
_Atomic(uint32_t) memscope_sample_filter_bits[MEMSCOPE_FILTER_WORDS];
_Static_assert((1u << MEMSCOPE_FILTER_BITS) == MEMSCOPE_FILTER_GROUP * 32 * MEMSCOPE_FILTER_WORDS,
               "each group of counters has a bit");

double memscope_sample_weight(double size, double rate) {
    return size > 0 ? 1 / -expm1(-size / rate) : 1;
}

/* ---- samples -------------------------------------------------------------------------------------------------- */

/* Counts one sample more or less, under the lock; free reads counter and bit without it. */
static void count_in_filter(uintptr_t address, int change) {
    size_t index = memscope_filter_index(address), bit = index / MEMSCOPE_FILTER_GROUP;
    _Atomic(uint16_t) *group = &table->filter[bit * MEMSCOPE_FILTER_GROUP];
    _Atomic(uint32_t) *bits = &memscope_sample_filter_bits[bit / 32];
    uint32_t any = 0;

    atomic_fetch_add_explicit(&table->filter[index], (uint16_t)change, memory_order_relaxed);
    for (int counter = 0; counter < MEMSCOPE_FILTER_GROUP; counter++)
        any |= atomic_load_explicit(&group[counter], memory_order_relaxed);
    if (any)
        atomic_fetch_or_explicit(bits, UINT32_C(1) << bit % 32, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(bits, ~(UINT32_C(1) << bit % 32), memory_order_relaxed);
}

static uint32_t home_of(uintptr_t address) {
    return memscope_address_hash(address) & (SLOTS - 1);
}

/* The slot that holds address, or the empty one where it would go. */
static uint32_t sample_slot(uintptr_t address) {
    uint32_t slot = home_of(address);

    while (table->sample_slots[slot] != 0 && table->samples[table->sample_slots[slot] - 1].address != address)
        slot = (slot + 1) & (SLOTS - 1);
    return slot;
}

/* Moves up the entries that follow an emptied slot, so that no search stops short of them. */
static void close_gap(uint32_t gap) {
    for (uint32_t slot = (gap + 1) & (SLOTS - 1); table->sample_slots[slot] != 0; slot = (slot + 1) & (SLOTS - 1)) {
        uint32_t home = home_of(table->samples[table->sample_slots[slot] - 1].address);

        if (((slot - home) & (SLOTS - 1)) < ((slot - gap) & (SLOTS - 1)))
            continue;
        table->sample_slots[gap] = table->sample_slots[slot];
        table->sample_slots[slot] = 0;
        gap = slot;
    }
}

static struct memscope_sample remove_sample(uintptr_t address) {
    uint32_t slot = sample_slot(address), index = table->sample_slots[slot];
    struct memscope_sample removed = {0}, *last;

    if (index == 0)
        return removed;
    removed = table->samples[index - 1];
    table->sample_slots[slot] = 0;
    close_gap(slot);
    count_in_filter(address, -1);
    last = &table->samples[--sample_count];
    if (index - 1 != sample_count) {
        table->sample_slots[sample_slot(last->address)] = index;
        table->samples[index - 1] = *last;
    }
    return removed;
}

static void add_sample(struct memscope_sample sample) {
    if (remove_sample(sample.address).stack != 0)
        lost_frees++;
    if (sample_count == SAMPLE_LIMIT) {
        dropped_samples++;
        return;
    }
    table->sample_slots[sample_slot(sample.address)] = sample_count + 1;
    table->samples[sample_count++] = sample;
    count_in_filter(sample.address, 1);
}

/* ---- the lock --------------------------------------------------------------------------------------------------- */

/*
 * Runs whenever the lock is taken. A removal is queued before its block is freed, so it is found here before the next
 * owner of the address can add a sample.
 */
static void remove_deferred(void) {
    if (!atomic_load(&any_deferred))
        return;
    atomic_store(&any_deferred, false);
    for (size_t index = 0; index < DEFERRED_LIMIT; index++) {
        uintptr_t address = atomic_exchange(&deferred[index], 0);

        if (address)
            remove_sample(address);
    }
}

/*
 * `held` is set before the lock is taken and cleared after it is released: a signal handler may run at any instruction.
 */
static void lock(void) {
    held = true;
    while (atomic_flag_test_and_set_explicit(&locked, memory_order_acquire))
        sched_yield();
    remove_deferred();
}

static void unlock(void) {
    atomic_flag_clear_explicit(&locked, memory_order_release);
    held = false;
}

bool memscope_sample_table_is_held(void) {
    return held;
}

void memscope_sample_table_before_fork(void) {
    if (table && PROTECTS(lock_across_fork) && !held) {
        lock();
        locked_for_fork = true;
    }
}

void memscope_sample_table_after_fork(void) {
    if (held && locked_for_fork) {
        locked_for_fork = false;
        unlock();
    }
}

/* ---- stacks --------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint64_t *words, unsigned length) {
    uint64_t hash = UINT64_C(1469598103934665603);

    for (unsigned index = 0; index < length; index++) {
        hash = (hash ^ words[index]) * UINT64_C(1099511628211);
        hash ^= hash >> 29;
    }
    return hash;
}

static bool is_stack(const struct stack *stack, uint64_t hash, const uint64_t *words, unsigned length) {
    return stack->hash == hash && stack->length == length &&
           memcmp(table->words + stack->first_word, words, length * sizeof *words) == 0;
}

/* The stack's number, counted from 1; a new stack is added. Returns 0 when there is no room for another. */
static uint32_t number_of_stack(const uint64_t *words, unsigned length) {
    uint64_t hash = hash_of(words, length);
    uint32_t slot = hash & (SLOTS - 1), number;

    while ((number = table->stack_slots[slot]) != 0) {
        if (is_stack(&table->stacks[number - 1], hash, words, length))
            return number;
        slot = (slot + 1) & (SLOTS - 1);
    }
    if (stack_count == STACK_LIMIT || length > WORD_LIMIT - word_count)
        return 0;
    memcpy(table->words + word_count, words, length * sizeof *words);
    table->stacks[stack_count++] = (struct stack){.hash = hash, .first_word = word_count, .length = length};
    word_count += length;
    return table->stack_slots[slot] = stack_count;
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

enum memscope_status memscope_sample_table_open(void) {
    if (table)
        return MEMSCOPE_OK;
    table = memscope_lasting_map(sizeof *table);
    if (!table)
        return MEMSCOPE_NO_MEMORY;
    memscope_sample_filter = table->filter;
    return MEMSCOPE_OK;
}

/* For locked pages (mlockall), which MADV_DONTNEED does not drop. Array elements beyond the counts need not be zero. */
static void empty_slots(void) {
    memset(table->filter, 0, sizeof table->filter);
    memset(table->sample_slots, 0, sizeof table->sample_slots);
    memset(table->stack_slots, 0, sizeof table->stack_slots);
}

void memscope_sample_table_clear(double rate) {
    lock();
    if (madvise(table, sizeof *table, MADV_DONTNEED) != 0)
        empty_slots();
    memset(memscope_sample_filter_bits, 0, sizeof memscope_sample_filter_bits);
    sample_count = stack_count = word_count = 0;
    dropped_samples = lost_frees = 0;
    sampling_rate = rate;
    unlock();
}

void memscope_sample_table_admit_all(void) {
    memscope_sample_table_clear(0);
    memset(table->filter, 1, sizeof table->filter);
    memset(memscope_sample_filter_bits, 0xff, sizeof memscope_sample_filter_bits);
}

void memscope_sample_table_add(uintptr_t address, uint64_t size, const uint64_t *words, unsigned length) {
    double weight = memscope_sample_weight((double)size, sampling_rate);
    uint32_t number;

    lock();
    number = number_of_stack(words, length);
    if (number != 0) {
        table->stacks[number - 1].allocated_bytes += (double)size * weight;
        table->stacks[number - 1].allocated_objects += weight;
        add_sample((struct memscope_sample){address, size, number});
    } else {
        dropped_samples++;
    }
    unlock();
}

struct memscope_sample memscope_sample_table_remove(uintptr_t address) {
    struct memscope_sample removed;

    lock();
    removed = remove_sample(address);
    unlock();
    return removed;
}

void memscope_sample_table_put_back(struct memscope_sample sample) {
    lock();
    add_sample(sample);
    unlock();
}

void memscope_sample_table_remove_later(uintptr_t address) {
    for (size_t index = 0; index < DEFERRED_LIMIT; index++) {
        uintptr_t unused = 0;

        if (atomic_compare_exchange_strong(&deferred[index], &unused, address))
            break;
    }
    atomic_store(&any_deferred, true);
}

size_t memscope_sample_table_bytes(void) {
    if (!table)
        return 0;
    return memscope_lasting_resident_bytes(memscope_sample_filter_bits, sizeof memscope_sample_filter_bits) +
           memscope_lasting_resident_bytes(table->filter, sizeof table->filter) +
           memscope_lasting_resident_bytes(table->sample_slots, sizeof table->sample_slots) +
           memscope_lasting_resident_bytes(table->stack_slots, sizeof table->stack_slots) +
           memscope_lasting_resident_bytes(table->samples, sample_count * sizeof table->samples[0]) +
           memscope_lasting_resident_bytes(table->stacks, stack_count * sizeof table->stacks[0]) +
           memscope_lasting_resident_bytes(table->words, word_count * sizeof table->words[0]);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void estimate(const struct memscope_sample *sample, double rate, struct memscope_sampled_stack *stack) {
    double size = (double)sample->size, weight = memscope_sample_weight(size, rate);

    stack->samples++;
    stack->live_bytes += size * weight;
    stack->live_objects += weight;
    stack->variance += size * size * weight * (weight - 1); /* x²(1−p)/p², by Horvitz and Thompson */
}

static struct memscope_sampled_stack sampled_stack(const struct stack *stack) {
    return (struct memscope_sampled_stack){
        .words = table->words + stack->first_word,
        .length = stack->length,
        .allocated_bytes = stack->allocated_bytes,
        .allocated_objects = stack->allocated_objects,
    };
}

/* Room for samples and stacks that are added between making room and taking the lock. */
#define SPARE 1024

enum memscope_status memscope_sample_table_read(struct memscope_scratch *scratch,
                                                struct memscope_sampled_stacks *read) {
    size_t samples_room = sample_count + SPARE, stacks_room = stack_count + SPARE, samples, stacks;
    struct memscope_sample *sample = memscope_scratch_take(scratch, samples_room * sizeof *sample);
    struct stack *stack = memscope_scratch_take(scratch, stacks_room * sizeof *stack);
    double rate;

    *read = (struct memscope_sampled_stacks){.list = memscope_scratch_take(scratch, stacks_room * sizeof *read->list)};
    if (!sample || !stack || !read->list)
        return MEMSCOPE_NO_MEMORY;
    lock();
    samples = sample_count < samples_room ? sample_count : samples_room;
    stacks = stack_count < stacks_room ? stack_count : stacks_room;
    memcpy(sample, table->samples, samples * sizeof *sample);
    memcpy(stack, table->stacks, stacks * sizeof *stack);
    read->dropped_samples = dropped_samples + (sample_count - samples);
    read->lost_frees = lost_frees;
    rate = sampling_rate;
    unlock();
    read->count = stacks;
    for (size_t index = 0; index < stacks; index++)
        read->list[index] = sampled_stack(&stack[index]);
    for (size_t index = 0; index < samples; index++)
        if (sample[index].stack <= stacks)
            estimate(&sample[index], rate, &read->list[sample[index].stack - 1]);
    return MEMSCOPE_OK;
}
