/*
 * Who holds given objects: the shortest path to each of them. Alike paths count as one.
 *
 * Paths are alike if they lead from the same category of roots through objects of the same classes, in the same order,
 * by the same constants and variables; indexes and keys do not matter. Classes and modules on the way are compared by
 * their node_class too, which may be their own names. An immediate repetition, as in a list of any length (Node → Node
 * → …, or Node → Array → Node → Array → …), counts once.
 */
#ifndef MEMSCOPE_PATH_GROUPS_H
#define MEMSCOPE_PATH_GROUPS_H

#include "graph/dominators.h"
#include "graph/shortest_paths.h"

#define MEMSCOPE_PATH_STEPS 64

/* An object, or several of one class in a row. */
struct memscope_path_step {
    uint32_t node; /* the first object; in a path's first step, the node of a category of roots */
    uint32_t last;
    uint32_t times;
    memscope_edge_name edge; /* from the previous step's last object to this step's first */
};

struct memscope_path_group {
    uint32_t count;    /* of objects */
    uint64_t weight;   /* of these objects together */
    uint64_t retained; /* by these objects together; other paths may lead to some of the retained objects */

    /* The shortest of the paths, without steps_left_out steps of its middle if it is too long. */
    struct memscope_path_step steps[MEMSCOPE_PATH_STEPS];
    uint32_t step_count, steps_left_out;
};

/* How `from` refers to `to`. */
typedef memscope_edge_name memscope_name_edge(void *context, uint32_t from, uint32_t to);

/* Who holds `nodes`, as far as the root reaches them? */
struct memscope_path_question {
    const struct memscope_heap_graph *graph;
    const struct memscope_shortest_paths *paths;
    const struct memscope_dominators *dominators;
    const uint32_t *nodes;
    const uint64_t *weights; /* one per node: the heaviest paths come first; NULL: paths whose ends retain most */
    size_t node_count;
    memscope_name_edge *namer; /* NULL: names are the graph's edge_names */
    void *context;
};

struct memscope_paths_found {
    size_t alike_count;   /* in the caller's array */
    uint32_t all_alike;   /* how many kinds were found; at most `top` of them are in the array */
    uint32_t targets;     /* objects that are reached */
    uint32_t not_reached; /* garbage among the nodes */
    uint64_t retained;    /* by all targets together */
};

/*
 * Finds at most `top` kinds of alike paths. Names the edges on the way to the targets; edges from arrays, hashes,
 * structs and Ruby's internal objects are named only if they are in the answer. While it searches, maps 16 bytes per
 * node, and 110 per path that is unlike all others.
 */
enum memscope_status memscope_path_groups_find(const struct memscope_path_question *question,
                                               struct memscope_path_group *alike, size_t top,
                                               struct memscope_paths_found *found);

/*
 * The path to one node that is reached, whatever nodes are asked for. Takes no longer than the path is, where
 * memscope_path_groups_find visits all nodes.
 */
enum memscope_status memscope_path_find(const struct memscope_path_question *question, uint32_t node,
                                        struct memscope_path_group *path);

#endif
