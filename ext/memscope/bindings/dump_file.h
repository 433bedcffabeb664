/* Reads a dump file into a graph. Every function needs the GVL. */
#pragma once

#include "values.h"

#include "base/mapped_array.h"
#include "dump/objspace_graph.h"

struct memscope_dump_file {
    enum memscope_status status; /* after the reading, MEMSCOPE_OK if the reader's graph and dump are made */
    struct memscope_objspace_reader reader;
    bool more;
    struct memscope_kept_mappings kept; /* of what the reader no longer needs, for the answer about its graph */
};

/* The descriptor stays the caller's. */
enum memscope_status memscope_dump_file_open(struct memscope_dump_file *file, int descriptor);

/* Reads without the GVL. Raises an interrupt of this thread, so the caller must close the file in rb_ensure. */
void memscope_dump_file_read(struct memscope_dump_file *file);

/* The reason why not all of the dump could be read, or nil. */
VALUE memscope_dump_file_reason(const struct memscope_dump_file *file);

/* True if objects that its roots do not reach are garbage: false for a dump without roots, or with missing parts. */
bool memscope_dump_file_tells_garbage(const struct memscope_dump_file *file);

/* If not all of the dump could be read, sets a reason for this key. */
void memscope_dump_file_set_reasons(const struct memscope_dump_file *file, VALUE reasons, const char *key);

/* Idempotent. A zeroed struct is closed. */
void memscope_dump_file_close(struct memscope_dump_file *file);
