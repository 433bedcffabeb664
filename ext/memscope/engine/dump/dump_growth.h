/*
 * Finds the objects that the last of two or three dumps of one process has and the first lacks. Entries of two dumps
 * are the same object if address, type and class are equal. Where the last dump states when the object was allocated,
 * they are the same if address and type are equal and both were allocated after the same garbage collection. An object
 * of an earlier generation than the newest object of an earlier dump counts as in that dump too, even if it was at
 * another address then. In mapped memory. No GVL.
 */
#pragma once

#include "record_structs.h"

#include "dump/objspace_reader.h"
#include "graph/shortest_paths.h"

struct memscope_dump_growth {
    /* Read with is_compared set. `second` is NULL if there are two dumps. Names may be added to the graph of `last`. */
    const struct memscope_objspace_reader *first, *second;
    struct memscope_objspace_reader *last;

    /*
     * By node of the last dump: true for a new object, which is not in the first dump but, with three dumps, in the
     * second. memscope_dump_growth_count clears it for garbage.
     */
    uint8_t *is_new;
    uint32_t *first_names;                       /* by name of the first dump: the name's number in the last dump */
    struct memscope_growth_row *classes, *sites; /* by name of the last dump, where sites count only new objects */
    uint32_t name_count;

    struct memscope_heap_part added, garbage; /* new objects that are reachable, and those that are not */
    uint64_t untraced_count;                  /* objects in `added` whose generation the last dump does not state */
    int64_t count, bytes;                     /* the last dump's minus the first's, garbage included */
    bool knows_generations;                   /* each dump states when some objects were allocated */
    bool knows_sites;                         /* the last dump states when, and so also where */
};

/*
 * Finds the new objects. Returns NOT_FOUND if most classes of an earlier dump are not in the last dump, so that the
 * dumps are of different processes, or NO_MEMORY. Close the growth even after a failure.
 */
enum memscope_status memscope_dump_growth_open(struct memscope_dump_growth *growth);

/* Adds up rows. New objects that these paths do not reach count as garbage. */
enum memscope_status memscope_dump_growth_count(struct memscope_dump_growth *growth,
                                                const struct memscope_shortest_paths *paths);

/*
 * Writes the tops of the growth: new objects that the paths reach from a root or from an object that is not new. The
 * weight of a top is its bytes and those of the new objects that paths reach from it through new objects only, so that
 * all weights add up to added.bytes. nodes and weights must each have room for added.count. Returns the number of tops,
 * 0 without memory.
 */
uint32_t memscope_dump_growth_tops(const struct memscope_dump_growth *growth,
                                   const struct memscope_shortest_paths *paths, uint32_t *nodes, uint64_t *weights);

/* Idempotent. */
void memscope_dump_growth_close(struct memscope_dump_growth *growth);
