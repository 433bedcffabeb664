/* The reason that accompanies held_by_objects_bytes, shared by the bindings that return it. */
#pragma once

#include "bindings/reasons.h"
#include "ruby/held_memory.h"

/*
 * Sets the reason for held_by_objects_bytes: the first few types of objects left out, and sizes of IO::Buffers that are
 * not malloc memory. Caller holds the GVL.
 */
void memscope_set_left_out_reason(VALUE reasons, const struct memscope_held_memory *held);

/* Likewise sets a reason for `key`, which also lists objects whose size is never read: fibers and threads. */
void memscope_set_unasked_reason(VALUE reasons, const char *key, const struct memscope_held_memory *held);
