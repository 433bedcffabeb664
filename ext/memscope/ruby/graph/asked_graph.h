/*
 * The graph that a question is asked of, of this process or of a dump, and what heap_answer.c has its parts find out
 * about it. The caller's context is that of memscope_heap_answer.
 */
#ifndef MEMSCOPE_ASKED_GRAPH_H
#define MEMSCOPE_ASKED_GRAPH_H

#include "ruby/graph/heap_answer.h"
#include "ruby/heap/heap_references.h"

struct memscope_asked_graph {
    const struct memscope_heap_question *question;
    struct memscope_heap_references references; /* for a dump, only the graph */
    const struct memscope_heap_dump *dump;      /* NULL: the graph is of this process */
    struct memscope_shortest_paths paths;
    struct memscope_dominators dominators;
};

/* ---- holdings.c */

/* What a class's objects sum up to, among those that one object holds. */
struct memscope_holding {
    uint64_t bytes, count;
};

/*
 * Of what an object holds, the class with the most bytes. `holdings`: by name, all zero, and so they are afterwards.
 * To be called before memscope_begin_at_namespaces.
 */
struct memscope_held_answer memscope_held_by(struct memscope_asked_graph *asked, uint32_t holder,
                                             struct memscope_holding *holdings);

/* ---- path_names.c */

/*
 * From then on, node_class of a class or module is its own name, and of a singleton class "#<Class:Owner>". Paths begin
 * at named classes and modules: readers know where to find a class, and need no path from Ruby's roots to it.
 */
void memscope_begin_at_namespaces(struct memscope_asked_graph *asked);

/* A memscope_name_edge of a graph of this process; the context is a struct memscope_asked_graph. */
memscope_edge_name memscope_name_live_edge(void *context, uint32_t from, uint32_t to);

/* A step of these paths, as an answer has it. */
struct memscope_step_answer memscope_step_named(struct memscope_asked_graph *asked,
                                                const struct memscope_path_group *alike, size_t index);

/* The name of a node, or of a category of roots. */
uint32_t memscope_name_of_node(struct memscope_asked_graph *asked, uint32_t node);

#endif
