/*
 * Who holds these objects: the shortest path to each of them; alike paths count as one.
 *
 * Paths are alike if they lead from the same category of roots through objects of the same classes, in the same order,
 * by the same constants and variables; indexes and keys do not matter. Classes and modules on the way are compared by
 * identity. An immediate repetition, as in a list of any length (Node → Node → …, or Node → Array → Node → Array → …),
 * counts once.
 */
#ifndef MEMSCOPE_ALIKE_PATHS_H
#define MEMSCOPE_ALIKE_PATHS_H

#include "graph/dominators.h"
#include "graph/shortest_paths.h"

#define MEMSCOPE_PATH_STEPS 64

/* An object, or several of one class in a row. */
struct memscope_path_step {
    uint32_t node; /* the first object; in a path's first step, the node of a category of roots */
    uint32_t last;
    uint32_t times;
    memscope_edge_name edge; /* from the last object of the step before to the first of this one */
};

struct memscope_alike_paths {
    uint32_t count;    /* of objects */
    uint64_t weight;   /* of these objects together */
    uint64_t retained; /* by these objects together; other paths may lead to objects within them */

    /* The shortest of the paths, without steps_left_out steps of its middle if it is too long. */
    struct memscope_path_step steps[MEMSCOPE_PATH_STEPS];
    uint32_t step_count, steps_left_out;
};

/* How `from` refers to `to`. */
typedef memscope_edge_name memscope_name_edge(void *context, uint32_t from, uint32_t to);

/* Who holds these nodes, as far as they are reached? */
struct memscope_path_question {
    const struct memscope_heap_graph *graph;
    const struct memscope_shortest_paths *paths;
    const struct memscope_dominators *dominators;
    const uint32_t *nodes;
    const uint64_t *weights; /* of each of nodes: the heaviest paths come first; NULL: those whose ends retain most */
    size_t node_count;
    memscope_name_edge *namer; /* NULL: names are the graph's edge_names */
    void *context;
};

struct memscope_paths_found {
    size_t alike_count;   /* in the caller's array */
    uint32_t all_alike;   /* how many were found, `top` of which are in the array */
    uint32_t targets;     /* objects that are reached */
    uint32_t not_reached; /* garbage among the nodes */
    uint64_t retained;    /* by all targets together */
};

/*
 * Finds at most `top` kinds of alike paths. Names the edges on the way to the targets, but those out of arrays, hashes,
 * structs and Ruby's internal objects only if they are in the answer. Maps 16 bytes a node, and 110 for each path
 * unlike the others, while it looks.
 */
enum memscope_status memscope_alike_paths_find(const struct memscope_path_question *question,
                                               struct memscope_alike_paths *alike, size_t top,
                                               struct memscope_paths_found *found);

#endif
