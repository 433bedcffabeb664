/* The body of a RubyHeap, for a binding whose own child has walked the heap. */
#ifndef MEMSCOPE_RUBY_HEAP_BINDING_H
#define MEMSCOPE_RUBY_HEAP_BINDING_H

#include "values.h"

#include "ruby/heap/heap_walk.h"

/*
 * child: started by memscope_walk_child_start, its answer received. fork_ns: for how long the fork was predicted to
 * stop Ruby. finished_gc: whether this reading ended a collection that was under way.
 */
VALUE memscope_heap_body(const struct memscope_walk_child *child, uint64_t fork_ns, bool finished_gc);

#endif
