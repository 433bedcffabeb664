/*
 * Calls of Ruby and of memscope in a private copy.
 */
#pragma once

#include "attach/private_copy.h"
#include "base/copy.h"

/*
 * Brings the copy to a point where Ruby functions may be called, and masks all interrupts there. A thread without the
 * GVL takes it. Any other runs on to its next safe point, where it calls a postponed job: never inside a garbage
 * collection, malloc, or an object that is half built. `forward`: always runs on, for tests.
 */
bool memscope_private_copy_reach_safe_point(struct memscope_private_copy *copy, bool forward);

/*
 * Loads memscope's extension from a descriptor of the tracer, by a memory file of the copy: no file system is shared.
 * Sets *evaluate to the address of memscope_copy_evaluate.
 */
bool memscope_private_copy_load(struct memscope_private_copy *copy, int extension, uint64_t *evaluate);

/* Evaluates an expression of at most MEMSCOPE_COPY_EXPRESSION bytes. */
#define MEMSCOPE_COPY_EXPRESSION (MEMSCOPE_COPY_ROOM - 4096)
bool memscope_private_copy_evaluate(struct memscope_private_copy *copy, uint64_t evaluate, const char *expression,
                                    size_t length, struct memscope_copy_answer *answer);
