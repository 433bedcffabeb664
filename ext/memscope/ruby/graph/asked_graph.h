/*
 * The graph of this process or of a dump that a question is about, and the parts of heap_answer.c that search it. The
 * caller's context is that of memscope_heap_answer.
 */
#pragma once

#include "ruby/graph/heap_answer.h"
#include "ruby/heap/heap_references.h"

struct memscope_asked_graph {
    const struct memscope_heap_question *question;
    struct memscope_heap_references references; /* for a dump, only the graph */
    const struct memscope_heap_dump *dump;      /* NULL for the graph of this process */
    struct memscope_shortest_paths paths;
    struct memscope_dominators dominators;
};

/* ---- holdings.c */

/* A class's sums over the objects that one object retains or leads to. */
struct memscope_holding {
    uint64_t bytes, count;
};

/*
 * The class with the most bytes among the holder's objects. `holdings`: by name, all zero before and after. Call it
 * before memscope_begin_at_namespaces.
 */
struct memscope_held_answer memscope_held_by(struct memscope_asked_graph *asked, uint32_t holder,
                                             struct memscope_holding *holdings);

/* ---- path_names.c */

/*
 * Sets node_class of a class or module to its own name, and of a singleton class to "#<Class:Owner>". Paths begin at
 * named classes and modules, since readers can find a class without a path from Ruby's roots.
 */
void memscope_begin_at_namespaces(struct memscope_asked_graph *asked);

/* A memscope_name_edge for the graph of this process. The context is a struct memscope_asked_graph. */
memscope_edge_name memscope_name_live_edge(void *context, uint32_t from, uint32_t to);

/* Step number `index` of these paths. */
struct memscope_step_answer memscope_step_named(struct memscope_asked_graph *asked,
                                                const struct memscope_path_group *alike, size_t index);

/* The name of a node, or of a category of roots. */
uint32_t memscope_name_of_node(struct memscope_asked_graph *asked, uint32_t node);
