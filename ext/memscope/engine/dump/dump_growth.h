/*
 * What the last of two or three dumps of one process has that the first has not. The objects of two dumps are the same
 * if they have the same address, type and class; or, where the last dump states when an object was allocated, the same
 * address and type, and were allocated after the same garbage collection. An object that was allocated before others of
 * an earlier dump counts as in that dump too, even if it was at another address. In mapped memory; no GVL.
 */
#ifndef MEMSCOPE_DUMP_GROWTH_H
#define MEMSCOPE_DUMP_GROWTH_H

#include "dump/objspace_reader.h"
#include "graph/shortest_paths.h"

/* A dump that was read with the reader's is_compared set. */
struct memscope_compared_dump {
    const struct memscope_objspace_reader *reader;
    const struct memscope_heap_dump *dump;
};

/* The objects of one class, or those that were allocated at one line. */
struct memscope_growth_row {
    int64_t count, bytes; /* the last dump's minus the first's, garbage included; of classes only */
    uint64_t later_count; /* in the last dump; of classes only */
    uint64_t new_count, new_bytes;
};

struct memscope_dump_growth {
    struct memscope_compared_dump first, second, last; /* second.reader is NULL if there are two dumps */

    /* By node of the last dump: whether the object is new: not in the first dump but, if there are three, in the
     * second. memscope_dump_growth_count clears it for garbage. */
    uint8_t *is_new;
    uint32_t *first_names;                       /* by name of the first dump: the same name's number in the last */
    struct memscope_growth_row *classes, *sites; /* by name of the last dump */
    uint32_t name_count;

    struct memscope_heap_part added, garbage; /* new objects that are reachable, and those that are not */
    uint64_t untraced_count;                  /* those in `added` whose generation the last dump does not state */
    int64_t count, bytes;                     /* the last dump's minus the first's, garbage included */
    bool knows_generations;                   /* each dump states when some objects were allocated */
    bool knows_sites;                         /* the last dump does, so it also states where */
};

/* Finds the new objects. NOT_FOUND if most classes of a dump are not in the last: the dumps are of different
 * processes. NO_MEMORY. Close it even after a failure. */
enum memscope_status memscope_dump_growth_open(struct memscope_dump_growth *growth);

/* Adds up rows. New objects that these paths do not reach count as garbage. */
enum memscope_status memscope_dump_growth_count(struct memscope_dump_growth *growth,
                                                const struct memscope_shortest_paths *paths);

/*
 * Writes the tops of the growth: new objects that the paths reach from a root or from an object that is not new. The
 * weight of a top is its bytes and those of the new objects that paths reach from it through new objects only, so that
 * all weights add up to added.bytes. nodes and weights must each have room for added.count. Returns how many there are;
 * 0 if there is no memory.
 */
uint32_t memscope_dump_growth_tops(const struct memscope_dump_growth *growth,
                                   const struct memscope_shortest_paths *paths, uint32_t *nodes, uint64_t *weights);

/* Idempotent. */
void memscope_dump_growth_close(struct memscope_dump_growth *growth);

#endif
