/* The lines that allocated the objects of a dump, if it was traced. In mapped memory. No GVL. */
#pragma once

#include "record_structs.h"

#include "dump/objspace_reader.h"
#include "graph/top_rows.h"

struct memscope_dump_sites {
    struct memscope_site_row *rows;   /* by name of the graph: the objects of a line, garbage included */
    struct memscope_top_rows largest; /* names with the most bytes, in order, none if the dump states no lines */
};

/* Call after the reader has read the dump and its graph is made. Close the sites even after a failure. */
enum memscope_status memscope_dump_sites_open(struct memscope_dump_sites *sites,
                                              const struct memscope_objspace_reader *reader, uint32_t top);

/* Idempotent. Zeroed sites count as closed. */
void memscope_dump_sites_close(struct memscope_dump_sites *sites);
