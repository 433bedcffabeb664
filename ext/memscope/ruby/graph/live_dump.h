/*
 * A heap dump of this process, written by a forked child: it follows the references of all objects, names them, and
 * writes the file.
 */
#pragma once

#include "record_structs.h"

#include "base/status.h"
#include "dump/heap_dump.h"
#include "ruby/heap/ruby_heap.h"

struct memscope_live_dump {
    enum memscope_dump_format format;
    enum memscope_size_rule sizes;
    int file; /* open for writing */
    uint64_t time_ns;
};

/* The result of a dump. Holds no pointer, so a forked child can send it. */
struct memscope_dump_result {
    enum memscope_status status;  /* of reading the heap */
    int error;                    /* errno of writing the file, 0 if none */
    MEMSCOPE_EMBED(dump_figures); /* pause_ms is 0 */
    bool lacks_ids;               /* so the dump cannot be compared with others */
};

/* A child's cost per slot, measured on heaps of one to six million objects with three references each. */
#define MEMSCOPE_DUMP_BYTES_OF_A_SLOT 100
#define MEMSCOPE_DUMP_NS_OF_A_SLOT 1000

/*
 * Writes the dump. Caller is the only thread of a forked child that ends soon: mapped memory is not unmapped. No
 * garbage collection is under way, and no other Ractor is alive. Call memscope_named_references_learn before the fork.
 */
void memscope_live_dump_write(const struct memscope_live_dump *asked, const struct memscope_heap_listing *listing,
                              struct memscope_scratch *scratch, struct memscope_dump_result *result);
