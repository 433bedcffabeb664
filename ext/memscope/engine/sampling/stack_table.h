/*
 * The distinct stacks of a malloc profile, each with what was allocated there, in a table of fixed size. Any context,
 * one thread at a time; allocates nothing, and leaves errno alone.
 *
 * A program that runs for days keeps producing new stacks, although nearly all the memory allocated there is freed
 * soon. Stacks with live samples are always complete. When many idle stacks (without live samples) have accumulated, a
 * shortening merges them: those that allocated most keep their frames; the others keep only the innermost frames,
 * followed by MEMSCOPE_STACK_CALLERS_DROPPED. Sums of bytes stay the same.
 */
#ifndef MEMSCOPE_STACK_TABLE_H
#define MEMSCOPE_STACK_TABLE_H

#include "sampling/sampled_stack.h"

#define MEMSCOPE_STACK_LIMIT (1u << 17)
#define MEMSCOPE_STACK_SLOTS (1u << 18) /* at most half of them are taken */
#define MEMSCOPE_STACKS_WORD_LIMIT (1u << 23)

struct memscope_kept_stack {
    uint64_t hash;
    uint32_t first_word;
    uint16_t length;
    bool shortened;
    uint32_t samples; /* live ones */
    double allocated_bytes, allocated_objects;
};

/* All zeros: an empty table. Array elements beyond the counts need not be zero. */
struct memscope_stack_table {
    uint32_t count, word_count;
    uint32_t idle;                        /* stacks without live samples */
    uint32_t idle_before;                 /* idle stacks that the last shortening left */
    uint32_t slots[MEMSCOPE_STACK_SLOTS]; /* numbers of stacks by hash; 0: none */
    struct memscope_kept_stack stacks[MEMSCOPE_STACK_LIMIT];
    uint64_t words[MEMSCOPE_STACKS_WORD_LIMIT];
    uint32_t renumbered[MEMSCOPE_STACK_LIMIT]; /* new number of the stack that was stacks[index] before a shortening */
    uint64_t rest[MEMSCOPE_STACK_WORDS];       /* what a shortening leaves of a stack */
};

/* The stack's number, counted from 1; a new stack is added. 0: there is no room for another. */
uint32_t memscope_stack_number(struct memscope_stack_table *table, const uint64_t *words, uint32_t length);

/* Counts one live sample of the stack more, or one less. */
void memscope_stack_gains_sample(struct memscope_stack_table *table, uint32_t number);
void memscope_stack_loses_sample(struct memscope_stack_table *table, uint32_t number);

/* Whether there are enough idle stacks for a shortening. */
bool memscope_stack_table_should_trim(const struct memscope_stack_table *table);

/* Renumbers the stacks; `renumbered` has the new numbers of those with live samples. */
void memscope_stacks_shorten(struct memscope_stack_table *table);

#endif
