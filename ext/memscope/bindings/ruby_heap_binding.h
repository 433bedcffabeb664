/* The body of a RubyHeap, for a binding whose own child has walked the heap. */
#pragma once

#include "bindings/heap_call.h"
#include "ruby/heap/heap_walk.h"

/* call: its child has walked the heap for MEMSCOPE_WALK_PINS, and answered. */
VALUE memscope_heap_body(const struct memscope_heap_call *call, const struct memscope_heap_walk *walk);
