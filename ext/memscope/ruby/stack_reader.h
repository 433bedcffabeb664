/*
 * The stacks that a malloc profile is of: Ruby frames under native ones, with what they were for.
 *
 * What reads them runs inside malloc, in any thread: with the GVL or without, during GC, in threads that Ruby does not
 * know. What is interned for it (frames, tags, threads' names) is read back here with the GVL.
 */
#ifndef MEMSCOPE_STACK_READER_H
#define MEMSCOPE_STACK_READER_H

#include "values.h"

#include "sampling/sampled_stack.h"

/* The stack reader of the engine's samplers. */
unsigned memscope_read_stack(uint64_t *words, unsigned room);

/* The index of the tag of the fiber that this thread runs; 0: none. Inside malloc too, in any thread and state. */
uint32_t memscope_current_tag(void);

/* A profile begins: forgets what was interned for the one before. With the GVL. */
void memscope_forget_interned(void);

/* The frame, tag or name that a word stands for; Qnil for none. With the GVL. */
VALUE memscope_interned_frame(uint64_t word);
VALUE memscope_interned_name(uint64_t word);

/* Another one after memscope_forget_interned. */
uint32_t memscope_session(void);

/* False for a stack that was read before the profile began, and for one of another reader than ours. */
bool memscope_is_of_this_session(const uint64_t *words, unsigned length);

uint32_t memscope_generation(void);
uint32_t memscope_next_generation(void);

struct memscope_stack_readings {
    uint64_t count, nanoseconds;
};

struct memscope_stack_readings memscope_stack_readings(void);

#endif
