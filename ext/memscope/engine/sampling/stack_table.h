/*
 * The distinct stacks of a malloc profile, each with the allocations there, in a table of fixed size. Any context, one
 * thread at a time. Allocates nothing, and leaves errno alone.
 *
 * A program that runs for days keeps producing new stacks, although nearly all the memory allocated there is freed
 * soon. Stacks with live samples are always complete. When many idle stacks (without live samples) have accumulated, a
 * merge pass shortens them: those that allocated most keep their frames, and the others keep only the innermost frames,
 * followed by MEMSCOPE_STACK_CALLERS_DROPPED. Sums of bytes stay the same.
 */
#pragma once

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

/* All zeros is an empty table. Array elements beyond the counts need not be zero. */
struct memscope_stack_table {
    uint32_t count, word_count;
    uint32_t idle;                        /* stacks without live samples */
    uint32_t idle_before;                 /* idle stacks after the last merge pass */
    uint32_t slots[MEMSCOPE_STACK_SLOTS]; /* numbers of stacks by hash, 0 for an empty slot */
    struct memscope_kept_stack stacks[MEMSCOPE_STACK_LIMIT];
    uint64_t words[MEMSCOPE_STACKS_WORD_LIMIT];
    uint32_t renumbered[MEMSCOPE_STACK_LIMIT]; /* new number, after a merge pass, of the stack that was stacks[index] */
    uint64_t rest[MEMSCOPE_STACK_WORDS];       /* shortened stack during a merge pass */
};

/* Returns the stack's number, counted from 1, or 0 if there is no room for a new stack. */
uint32_t memscope_stack_number(struct memscope_stack_table *table, const uint64_t *words, uint32_t length);

/* Adds or removes one live sample of the stack. */
void memscope_stack_add_sample(struct memscope_stack_table *table, uint32_t number);
void memscope_stack_remove_sample(struct memscope_stack_table *table, uint32_t number);

/* Returns true if there are enough idle stacks for a merge pass. */
bool memscope_stack_table_should_trim(const struct memscope_stack_table *table);

/* Runs a merge pass, which renumbers the stacks. `renumbered` has the new numbers of those with live samples. */
void memscope_stacks_shorten(struct memscope_stack_table *table);
