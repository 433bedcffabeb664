/*
 * Frames and estimates of a profile, of malloc or of objects, as Ruby values. With the GVL; allocates.
 */
#ifndef MEMSCOPE_PROFILE_VALUES_H
#define MEMSCOPE_PROFILE_VALUES_H

#include "values.h"

#include "sampling/sampled_stack.h"

/* A function of the object file library, or an address. */
VALUE memscope_native_frame(VALUE name, VALUE library);

VALUE memscope_state_frame(enum memscope_stack_state state);

/* Line 0 means no line, and path is then ignored: a thread's outermost frame, or one of an extension being loaded. */
VALUE memscope_ruby_frame(VALUE name, VALUE path, uint32_t line);

/* An estimate as it is shown; 0 for what is negative. */
uint64_t memscope_rounded(double value);
VALUE memscope_estimate(double value);

#endif
