/* What the readings of heap graphs share. */
#ifndef MEMSCOPE_HEAP_GRAPH_BINDING_H
#define MEMSCOPE_HEAP_GRAPH_BINDING_H

#include "values.h"

#include "ruby/graph/heap_answer.h"

/* The body of a HeapGraph::Path. */
VALUE memscope_path_hash(const struct memscope_path_answer *path);

#endif
