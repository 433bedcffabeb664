/*
 * A heap dump: a graph, its meaning outside its process, and the formats that it can be written in. It has no contents:
 * no string, symbol, number or key, and no address. Nothing here takes memory from malloc, so a forked child can write
 * it.
 */
#pragma once

#include "dump/dump_output.h"
#include "graph/heap_graph.h"

/* A class or module, and its name. A singleton class has the name of the class above it. */
struct memscope_module_name {
    uint32_t node, name;
    bool singleton;
    bool named; /* has its own name: neither a singleton class nor anonymous */
};

/* The rounding of an object's malloc memory, so that no exact length of a string gives its contents away. */
enum memscope_size_rule {
    MEMSCOPE_SIZES_EXACT,
    MEMSCOPE_SIZES_OF_GLIBC,    /* chunks in steps of 16 bytes */
    MEMSCOPE_SIZES_OF_JEMALLOC, /* four classes for each doubling, also for unknown allocators */
};

struct memscope_heap_dump {
    struct memscope_heap_graph *graph;

    /*
     * By slot: an odd number, made of the slot's distance from BasicObject (memscope_heap_dump_id), which stays the
     * same for the life of the process. NULL if unknown.
     */
    const uint32_t *ids;

    const struct memscope_module_name *modules; /* ascending by node */
    uint32_t module_count;

    enum memscope_size_rule sizes;
    uint32_t pid;     /* 0 if unknown, as in a converted dump */
    uint64_t time_ns; /* since 1970 */
};

enum memscope_dump_format { MEMSCOPE_DUMP_PERFETTO, MEMSCOPE_DUMP_HEAPSNAPSHOT, MEMSCOPE_DUMP_OBJSPACE };

/* Writes to the output, which the caller flushes. Errors are in output->error. May add names to graph->names. */
void memscope_heap_dump_write(const struct memscope_heap_dump *dump, enum memscope_dump_format format,
                              struct memscope_dump_output *output);

/* ---- for the formats ------------------------------------------------------------------------------------------- */

void memscope_perfetto_write(const struct memscope_heap_dump *dump, struct memscope_dump_output *output);
void memscope_heapsnapshot_write(const struct memscope_heap_dump *dump, struct memscope_dump_output *output);
void memscope_objspace_write(const struct memscope_heap_dump *dump, struct memscope_dump_output *output);

/* The id of a slot that is `distance` bytes from BasicObject's, 0 if it is too far for 32 bits. */
uint32_t memscope_heap_dump_id(int64_t distance);

/* The id of a node of this dump, made from the node's number if ids are unknown. Odd, so never 0. */
uint32_t memscope_heap_dump_id_of(const struct memscope_heap_dump *dump, uint32_t node);

/* An object's bytes, rounded up by the dump's size rule. */
uint64_t memscope_heap_dump_bytes(const struct memscope_heap_dump *dump, uint32_t node);

/* Returns NULL if the node is not a class or module. */
const struct memscope_module_name *memscope_heap_dump_module(const struct memscope_heap_dump *dump, uint32_t node);

/* The number of the object's label: "User", "Class<User>", "Singleton<User>". */
uint32_t memscope_heap_dump_label(const struct memscope_heap_dump *dump, uint32_t node);

/* Adds a composed name: `before`, the name with number `name` (cut if it is long), `after`. Returns the new number. */
uint32_t memscope_heap_dump_compose(const struct memscope_heap_dump *dump, const char *before, uint32_t name,
                                    const char *after);
