/* Shared by the readings of heap graphs. */
#ifndef MEMSCOPE_HEAP_GRAPH_BINDING_H
#define MEMSCOPE_HEAP_GRAPH_BINDING_H

#include "values.h"

#include "ruby/graph/heap_answer.h"

/* The body of a HeapGraph::Path. threads: those of the question. */
VALUE memscope_path_hash(const struct memscope_heap_answer *answer, const struct memscope_thread_list *threads,
                         const struct memscope_path_answer *path);

/* The part of a name before its NUL, and the part after it, nil if empty. */
VALUE memscope_graph_name(const struct memscope_names *names, uint32_t name);
VALUE memscope_graph_place(const struct memscope_names *names, uint32_t name);

#endif
