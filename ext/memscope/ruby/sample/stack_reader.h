/*
 * The stacks of a malloc profile: Ruby frames under native ones, with their labels.
 *
 * The reader runs inside malloc, in any thread: with the GVL or without, during GC, and in threads that are not Ruby's.
 * With the GVL, memscope_interned_name reads the tags and thread names in a stack, and sampled_frames.h its frames.
 */
#pragma once

#include "values.h"

#include "sampling/sampled_stack.h"

/* The stack reader of the engine's samplers. */
unsigned memscope_read_stack(uint64_t *words, unsigned room);

/*
 * Called with the GVL before each profile. without_gvl: whether the reader reads the frames of threads that wait
 * without the GVL. Returns false if there is no memory. Its setup, which the first call does, is never torn down.
 */
bool memscope_stack_reader_prepare(bool without_gvl);

/* Called when a profile begins: drops the frames and thread names of the previous one. With the GVL. */
void memscope_stack_reader_begin(void);

/* Called when a profile has stopped or could not start. Frames keep their names. With the GVL. Allocates Strings. */
void memscope_stack_reader_end(void);

/* Turns the frames of all stacks that were read so far into text. With the GVL. Allocates Strings. */
void memscope_stack_reader_settle(void);

/* A word's tag or name, or Qnil. With the GVL. */
VALUE memscope_interned_name(uint64_t word);

/* The number of the current session. memscope_stack_reader_begin begins a new one. */
uint32_t memscope_session(void);

/* Returns false for a stack that was read before the profile began, or by another reader. */
bool memscope_is_of_this_session(const uint64_t *words, unsigned length);

uint32_t memscope_generation(void);
uint32_t memscope_next_generation(void);

struct memscope_stack_readings {
    uint64_t count, nanoseconds;
};

struct memscope_stack_readings memscope_stack_readings(void);
