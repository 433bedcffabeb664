/*
 * Questions about a heap graph, and their answers: retained sizes, reference paths, garbage. Answered in the process,
 * or in a forked child.
 */
#pragma once

#include <ruby.h>

#include "base/shared_room.h"
#include "dump/dump_growth.h"
#include "graph/path_groups.h"
#include "graph/retained_sizes.h"
#include "ruby/graph/duplicate_strings.h"
#include "ruby/graph/thread_list.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/held_memory.h"

#define MEMSCOPE_MAX_ROWS 1000

/* A global variable that refers to an object. */
struct memscope_global {
    VALUE value;
    ID name;
};

struct memscope_heap_question {
    uint32_t top; /* rows of each list, up to MEMSCOPE_MAX_ROWS */
    bool strings;

    /*
     * The target of the paths: one object, some objects, the instances of a class or module and of its descendants, the
     * objects whose class has this name, the new objects of a dump or, if all are 0, the objects in which memory has
     * accumulated.
     */
    VALUE object, class;
    const VALUE *objects;
    size_t object_count;
    const char *class_name;
    struct memscope_dump_growth *growth; /* for dumps only, where the answer counts its rows */

    const struct memscope_global *globals;
    size_t global_count;
    struct memscope_thread_list threads; /* none for a dump */
};

/*
 * All names are numbers in the answer's names. The name of a Proc, fiber or thread is followed by a NUL and the line
 * that made it (ruby/graph/made_at.h), except in lists by class.
 */

/* An object on a path, or several of one class in a row. */
struct memscope_step_answer {
    uint32_t name; /* the own name of a class, module or root, or the class's name */
    uint32_t times;
    memscope_edge_name edge; /* by which the previous step refers to this one */
    uint32_t thread;         /* 1 + the index of the only thread in the question's list, 0 if none */
};

/* The class with the most bytes among the objects that one object retains or leads to. */
struct memscope_held_answer {
    uint32_t name;  /* 0 if there are no such objects */
    uint64_t count; /* unknown then */
};

/* Shortest paths that are alike. Only a suspect at their end has a held class. */
struct memscope_path_answer {
    MEMSCOPE_EMBED(path_sums);
    struct memscope_step_answer steps[MEMSCOPE_PATH_STEPS];
    uint32_t step_count;
};

struct memscope_dominator_answer {
    MEMSCOPE_EMBED(dominator_sums);
    struct memscope_path_answer path; /* a shortest path to the dominator */
};

/* Lists and names are in the room. */
struct memscope_heap_answer {
    enum memscope_status status; /* the other members are set if it is MEMSCOPE_OK */
    struct memscope_names names;
    struct memscope_graph_totals totals; /* child_bytes is 0 in the process */
    uint64_t saturated_count;            /* objects of 4 GiB or more, each counted as 4 GiB */
    struct memscope_class_row *retained, *garbage_classes;
    struct memscope_dominator_answer *dominators;
    struct memscope_path_answer *paths;
    struct memscope_root_row *roots;
    struct memscope_duplicates *duplicates;
    size_t retained_count, garbage_class_count, dominator_count, path_count, root_count;
    uint32_t duplicates_count;
    struct memscope_string_sums strings;
    struct memscope_held_memory held;
    uint64_t spent_ns; /* CPU time */
};

/*
 * Answers the question. Caller holds the GVL, or is the only thread of a forked child, and has called
 * memscope_named_references_learn. No collection is under way, and no other Ractor is alive. Takes under a microsecond
 * per object, and maps 60 to 110 bytes per object while it works.
 */
void memscope_heap_answer(const struct memscope_heap_question *question, const struct memscope_heap_listing *listing,
                          struct memscope_scratch *scratch, struct memscope_shared_room *room,
                          struct memscope_heap_answer *answer);

/*
 * As memscope_heap_answer, for a dump, whose graph must have edge names. The question may set class_name or growth, but
 * not object, objects, class or strings. No GVL needed.
 */
void memscope_heap_answer_of_dump(const struct memscope_heap_question *question, const struct memscope_heap_dump *dump,
                                  struct memscope_shared_room *room, struct memscope_heap_answer *answer);
