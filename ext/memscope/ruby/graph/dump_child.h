/*
 * Writes a heap dump of this process. A forked child does it all: it follows the references of all objects, names them,
 * and writes the file.
 */
#ifndef MEMSCOPE_DUMP_CHILD_H
#define MEMSCOPE_DUMP_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "dump/heap_dump.h"
#include "fork/forked_child.h"
#include "ruby/heap/ruby_heap.h"

/* The result of a dump. Holds no pointer, so a forked child can send it. */
struct memscope_dump_result {
    enum memscope_status status; /* of reading the heap */
    int error;                   /* errno of writing the file; 0: none */
    uint32_t objects, references;
    bool lacks_ids;       /* so the dump cannot be compared with others */
    uint64_t bytes;       /* of the file */
    uint64_t child_bytes; /* memory that only the child had, at its peak */
};

struct memscope_dump_child {
    /* Set before the start; `listing` and `child` must not move until the end. */
    struct memscope_heap_listing *listing;
    enum memscope_dump_format format;
    int file; /* open for writing, in the parent */
    enum memscope_size_rule sizes;
    uint64_t time_ns;
    unsigned deadline_ms;

    struct memscope_forked_child child;
    struct memscope_dump_result result; /* the answer */
};

/* The bytes and nanoseconds that the child takes for this many slots, as measured. */
uint64_t memscope_dump_child_bytes(uint64_t slots);
uint64_t memscope_dump_child_ns(uint64_t slots);

/*
 * Starts the child. Caller holds the GVL, which the functions below do not need. No garbage collection is under way,
 * and no other Ractor alive. Fails as memscope_forked_child_start does.
 */
enum memscope_status memscope_dump_child_start(struct memscope_dump_child *child);

/* Idempotent. */
void memscope_dump_child_end(struct memscope_dump_child *child);

#endif
