/* Shared by the readings of heap graphs. */
#pragma once

#include "values.h"

#include "ruby/graph/heap_answer.h"

/* The body of a HeapGraph::Path. threads: those of the question. */
VALUE memscope_path_hash(const struct memscope_heap_answer *answer, const struct memscope_thread_list *threads,
                         const struct memscope_path_answer *path);
