/* The reason that accompanies held_by_objects_bytes, shared by the bindings that return it. */
#ifndef MEMSCOPE_HELD_MEMORY_REASON_H
#define MEMSCOPE_HELD_MEMORY_REASON_H

#include "bindings/reasons.h"
#include "ruby/held_memory.h"

/* Sets the reason for held_by_objects_bytes if objects were left out: by type, the first few by name. GVL held. */
void memscope_set_left_out_reason(VALUE reasons, const struct memscope_held_memory *held);

/* The same under another key, with those that are never asked: classes from Ruby 4.0 on, and fibers. */
void memscope_set_unasked_reason(VALUE reasons, const char *key, const struct memscope_held_memory *held);

#endif
