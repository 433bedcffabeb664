#include "sampling/sample_table.h"

#include "base/protections.h"
#include "sampling/stack_table.h"

#include <math.h>
#include <sched.h>
#include <string.h>

#define SAMPLE_LIMIT (1u << 17)
#define SLOTS (1u << 18) /* at most half of them are taken */
#define DEFERRED_LIMIT 64

static struct table {
    _Atomic(uint16_t) filter[1u << MEMSCOPE_FILTER_BITS];
    uint32_t slots[SLOTS]; /* by address: indexes + 1 into samples, 0 for an empty slot */
    struct memscope_sample samples[SAMPLE_LIMIT];
    struct memscope_stack_table stacks;
} * table;

static uint32_t sample_count;
static uint32_t numbering; /* of stacks, increased when their numbers change */
static uint64_t dropped_samples, lost_frees;
static double sampling_rate;
static _Atomic(uintptr_t) deferred[DEFERRED_LIMIT];
static atomic_bool any_deferred;
static atomic_flag locked = ATOMIC_FLAG_INIT;
static __thread volatile bool held; /* this thread holds the lock, or waits for it */
static bool locked_for_fork;
static _Atomic(uint16_t) no_filter[1u << MEMSCOPE_FILTER_BITS]; /* never written, so it has no memory of its own */

_Atomic(uint16_t) *memscope_sample_filter = no_filter;
_Atomic(uint32_t) memscope_sample_filter_bits[MEMSCOPE_FILTER_WORDS];
_Static_assert((1u << MEMSCOPE_FILTER_BITS) == MEMSCOPE_FILTER_GROUP * 32 * MEMSCOPE_FILTER_WORDS,
               "each group of counters has a bit");

double memscope_sample_weight(double size, double rate) {
    return size > 0 ? 1 / -expm1(-size / rate) : 1;
}

/* ---- samples -------------------------------------------------------------------------------------------------- */

/* Adds `change` to a counter and updates its bit, under the lock. free reads both without the lock. */
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

    while (table->slots[slot] != 0 && table->samples[table->slots[slot] - 1].address != address)
        slot = (slot + 1) & (SLOTS - 1);
    return slot;
}

/* Moves up the entries that follow an emptied slot, so that no search stops short of them. */
static void close_gap(uint32_t gap) {
    for (uint32_t slot = (gap + 1) & (SLOTS - 1); table->slots[slot] != 0; slot = (slot + 1) & (SLOTS - 1)) {
        uint32_t home = home_of(table->samples[table->slots[slot] - 1].address);

        if (((slot - home) & (SLOTS - 1)) < ((slot - gap) & (SLOTS - 1)))
            continue;
        table->slots[gap] = table->slots[slot];
        table->slots[slot] = 0;
        gap = slot;
    }
}

static struct memscope_sample remove_sample(uintptr_t address) {
    uint32_t slot = sample_slot(address), index = table->slots[slot];
    struct memscope_sample removed = {0}, *last;

    if (index == 0)
        return removed;
    removed = table->samples[index - 1];
    table->slots[slot] = 0;
    close_gap(slot);
    count_in_filter(address, -1);
    memscope_stack_remove_sample(&table->stacks, removed.stack);
    last = &table->samples[--sample_count];
    if (index - 1 != sample_count) {
        table->slots[sample_slot(last->address)] = index;
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
    table->slots[sample_slot(sample.address)] = sample_count + 1;
    table->samples[sample_count++] = sample;
    count_in_filter(sample.address, 1);
    memscope_stack_add_sample(&table->stacks, sample.stack);
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
 * Sets `held` before the lock is taken and clears it after the release, since a signal handler may run at any
 * instruction.
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

void memscope_sample_table_clear(double rate) {
    lock();
    memscope_lasting_empty(table, sizeof *table);
    memset(memscope_sample_filter_bits, 0, sizeof memscope_sample_filter_bits);
    sample_count = 0;
    numbering++;
    dropped_samples = lost_frees = 0;
    sampling_rate = rate;
    unlock();
}

void memscope_sample_table_admit_all(void) {
    memscope_sample_table_clear(0);
    memset(table->filter, 1, sizeof table->filter);
    memset(memscope_sample_filter_bits, 0xff, sizeof memscope_sample_filter_bits);
}

/* Rounds to whole bytes, so that sums stay the same when stacks are merged. */
static double whole_bytes(double size, double weight) {
    return round(size * weight);
}

static void shorten_stacks(void) {
    memscope_stacks_shorten(&table->stacks);
    numbering++;
    for (uint32_t index = 0; index < sample_count; index++)
        table->samples[index].stack = table->stacks.renumbered[table->samples[index].stack - 1];
}

void memscope_sample_table_add(uintptr_t address, uint64_t size, const uint64_t *words, unsigned length) {
    double weight = memscope_sample_weight((double)size, sampling_rate);
    struct memscope_kept_stack *stack;
    uint32_t number;

    lock();
    if (memscope_stack_table_should_trim(&table->stacks))
        shorten_stacks();
    number = memscope_stack_number(&table->stacks, words, length);
    if (number != 0) {
        stack = &table->stacks.stacks[number - 1];
        stack->allocated_bytes += whole_bytes((double)size, weight);
        stack->allocated_objects += weight;
        add_sample((struct memscope_sample){.address = address, .size = size, .stack = number});
    } else {
        dropped_samples++;
    }
    unlock();
}

struct memscope_sample memscope_sample_table_remove(uintptr_t address) {
    struct memscope_sample removed;

    lock();
    removed = remove_sample(address);
    removed.numbering = numbering;
    unlock();
    return removed;
}

void memscope_sample_table_put_back(struct memscope_sample sample) {
    lock();
    if (sample.numbering == numbering)
        add_sample(sample);
    else
        dropped_samples++;
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
    return table ? memscope_lasting_resident_bytes(memscope_sample_filter_bits, sizeof memscope_sample_filter_bits) +
                       memscope_lasting_resident_bytes(table, sizeof *table)
                 : 0;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void estimate(const struct memscope_sample *sample, double rate, struct memscope_sampled_stack *stack) {
    double size = (double)sample->size, weight = memscope_sample_weight(size, rate);

    stack->samples++;
    stack->live_bytes += whole_bytes(size, weight);
    stack->live_objects += weight;
    stack->variance += size * size * weight * (weight - 1); /* x²(1−p)/p², by Horvitz and Thompson */
}

/* A copy of the table in scratch, and its capacities. */
struct copy {
    struct memscope_sample *samples;
    struct memscope_kept_stack *stacks;
    uint64_t *words;
    uint32_t samples_room, stacks_room, words_room;
    uint32_t sample_count, stack_count;
    double rate;
};

/* Room for entries added between making room and taking the lock. */
#define SPARE 1024

/* The pages are made resident first, so that copying under the lock waits for no memory. */
static bool make_room(struct memscope_scratch *scratch, struct copy *copy) {
    copy->samples_room = sample_count + SPARE;
    copy->stacks_room = table->stacks.count + SPARE;
    copy->words_room = table->stacks.word_count + SPARE * MEMSCOPE_STACK_WORDS / 4;
    memscope_scratch_pretouch(scratch, copy->samples_room * sizeof *copy->samples +
                                           copy->stacks_room * sizeof *copy->stacks +
                                           copy->words_room * sizeof *copy->words);
    copy->samples = memscope_scratch_take(scratch, copy->samples_room * sizeof *copy->samples);
    copy->stacks = memscope_scratch_take(scratch, copy->stacks_room * sizeof *copy->stacks);
    copy->words = memscope_scratch_take(scratch, copy->words_room * sizeof *copy->words);
    return copy->samples && copy->stacks && copy->words;
}

/* Under the lock. Returns false if there is not enough room. */
static bool copy_table(struct copy *copy) {
    const struct memscope_stack_table *stacks = &table->stacks;

    if (sample_count > copy->samples_room || stacks->count > copy->stacks_room || stacks->word_count > copy->words_room)
        return false;
    memcpy(copy->samples, table->samples, sample_count * sizeof *copy->samples);
    memcpy(copy->stacks, stacks->stacks, stacks->count * sizeof *copy->stacks);
    memcpy(copy->words, stacks->words, stacks->word_count * sizeof *copy->words);
    copy->sample_count = sample_count;
    copy->stack_count = stacks->count;
    copy->rate = sampling_rate;
    return true;
}

static struct memscope_sampled_stack sampled_stack(const struct copy *copy, const struct memscope_kept_stack *stack) {
    return (struct memscope_sampled_stack){
        .words = copy->words + stack->first_word,
        .length = stack->length,
        .allocated_bytes = stack->allocated_bytes,
        .allocated_objects = stack->allocated_objects,
    };
}

enum memscope_status memscope_sample_table_read(struct memscope_scratch *scratch,
                                                struct memscope_sampled_stacks *read) {
    struct copy copy = {0};
    bool copied = false;

    *read = (struct memscope_sampled_stacks){0};
    while (!copied) {
        if (!make_room(scratch, &copy))
            return MEMSCOPE_NO_MEMORY;
        lock();
        copied = copy_table(&copy);
        read->dropped_samples = dropped_samples;
        read->lost_frees = lost_frees;
        unlock();
    }
    read->list = memscope_scratch_take(scratch, copy.stack_count * sizeof *read->list);
    if (!read->list)
        return MEMSCOPE_NO_MEMORY;
    read->count = copy.stack_count;
    for (size_t index = 0; index < read->count; index++)
        read->list[index] = sampled_stack(&copy, &copy.stacks[index]);
    for (size_t index = 0; index < copy.sample_count; index++)
        estimate(&copy.samples[index], copy.rate, &read->list[copy.samples[index].stack - 1]);
    return MEMSCOPE_OK;
}
