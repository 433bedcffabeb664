/*
 * What the last of two or three dumps of one process has that the first has not. The objects of two dumps are the same
 * if they have the same address, type and class; or, where both dumps state when objects were allocated, if they have
 * the same address and were allocated after the same garbage collection. In mapped memory; no GVL.
 */
#ifndef MEMSCOPE_DUMP_GROWTH_H
#define MEMSCOPE_DUMP_GROWTH_H

#include "dump/objspace_reader.h"
#include "graph/shortest_paths.h"

/* What was read of a file. The reader must have been told that the dump is to be compared. */
struct memscope_compared_dump {
    const struct memscope_objspace_reader *reader;
    const struct memscope_heap_dump *dump;
};

/* Objects of one class, or that were allocated at one place. */
struct memscope_growth_row {
    int64_t count, bytes; /* of the last dump minus those of the first, garbage included; of a class only */
    uint64_t later_count; /* of the last dump */
    uint64_t new_count, new_bytes;
};

struct memscope_dump_growth {
    struct memscope_compared_dump first, second, last; /* second.reader is NULL if there are two dumps */

    /* By node of the last dump: whether the object is new: not in the first dump and, of three, in the second. Garbage
     * counts as not new once it was counted. */
    uint8_t *is_new;
    uint32_t *first_names;                       /* by name of the first dump: the same name's number in the last */
    struct memscope_growth_row *classes, *sites; /* by name of the last dump */
    uint32_t name_count;

    struct memscope_heap_part added, garbage; /* new objects that are reachable, and others */
    int64_t count, bytes;                     /* as in a row, of all objects */
    bool knows_generations;                   /* all dumps state when some objects were allocated */
    bool knows_sites;                         /* the last one states where some were */
};

/* Finds the new objects. NOT_FOUND if most classes of a dump are not in the last: they are of different processes.
 * NO_MEMORY. Close it after either. */
enum memscope_status memscope_dump_growth_open(struct memscope_dump_growth *growth);

/* Adds up rows, and sorts out new objects that these paths do not reach. */
enum memscope_status memscope_dump_growth_count(struct memscope_dump_growth *growth,
                                                const struct memscope_shortest_paths *paths);

/*
 * Where the growth hangs: new objects that the paths lead to from objects that are not new. The weight of each is the
 * bytes of the new objects that paths lead to through it and new objects only, so that all weights add up to
 * added.bytes. Room for added.count of both; returns how many there are, 0 if there is no memory.
 */
uint32_t memscope_dump_growth_tops(const struct memscope_dump_growth *growth,
                                   const struct memscope_shortest_paths *paths, uint32_t *nodes, uint64_t *weights);

/* Idempotent. */
void memscope_dump_growth_close(struct memscope_dump_growth *growth);

#endif
