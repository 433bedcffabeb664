/*
 * Reference paths: the shortest path to each of the given objects, in groups of alike paths.
 *
 * Paths are alike if they lead from the same category of roots through objects of the same classes, in the same order,
 * by the same constants and variables. Indexes and keys do not matter. Classes and modules on the way are compared by
 * their node_class too, which may be their own names. An immediate repetition, as in a list of any length (Node → Node
 * → …, or Node → Array → Node → Array → …), is one step.
 */
#pragma once

#include "graph/dominators.h"
#include "graph/shortest_paths.h"

#define MEMSCOPE_PATH_STEPS 64

/* An object, or several of one class in a row. */
struct memscope_path_step {
    uint32_t node; /* the first object or, in a path's first step, the node of a category of roots */
    uint32_t last;
    uint32_t times;
    memscope_edge_name edge; /* from the previous step's last object to this step's first */
};

struct memscope_path_group {
    uint32_t count;    /* of objects */
    uint64_t weight;   /* of these objects together */
    uint64_t retained; /* by these objects together, where other paths may lead to some of the retained objects */

    /* The shortest of the paths, without steps_left_out steps of its middle if it is too long. */
    struct memscope_path_step steps[MEMSCOPE_PATH_STEPS];
    uint32_t step_count, steps_left_out;
};

/* How `from` refers to `to`. */
typedef memscope_edge_name memscope_name_edge(void *context, uint32_t from, uint32_t to);

/* A question for the paths to those of `nodes` that the root reaches. */
struct memscope_path_question {
    const struct memscope_heap_graph *graph;
    const struct memscope_shortest_paths *paths;
    const struct memscope_dominators *dominators;
    const uint32_t *nodes;
    const uint64_t *weights; /* one per node, to order paths, or NULL for their ends' retained bytes */
    size_t node_count;
    memscope_name_edge *namer; /* NULL for the graph's edge_names */
    void *context;
};

struct memscope_paths_found {
    size_t alike_count;   /* in the caller's array */
    uint32_t all_alike;   /* number of groups, of which at most `top` are in the array */
    uint32_t targets;     /* objects that are reached */
    uint32_t not_reached; /* garbage among the nodes */
    uint64_t retained;    /* by all targets together */
};

/*
 * Finds at most `top` groups of alike paths. Names the edges on the way to the targets, but edges from arrays, hashes,
 * structs and Ruby's internal objects only if they are in the answer. While it searches, maps 16 bytes per node, and
 * 110 per group.
 */
enum memscope_status memscope_path_groups_find(const struct memscope_path_question *question,
                                               struct memscope_path_group *alike, size_t top,
                                               struct memscope_paths_found *found);

/*
 * The path to one node that is reached, whether or not it is in the question. Takes time linear in the path's length,
 * where memscope_path_groups_find visits all nodes.
 */
enum memscope_status memscope_path_find(const struct memscope_path_question *question, uint32_t node,
                                        struct memscope_path_group *path);
