/*
 * Reads what ObjectSpace.dump_all wrote, by any Ruby from 2.7 on, into a heap graph. The file is read in pieces into
 * memory of the reader's own: it may be a pipe, and may be cut short meanwhile. A line that cannot be understood is
 * left out and counted. No GVL, no malloc; for one thread at a time.
 *
 * Before Ruby 3.2, a traced dump writes other memory after each byte of a method's name that is not ASCII, even quotes
 * and newlines (ext/objspace/objspace_dump.c, dump_append_string_value). Such a name is skipped; the rest of its line
 * is read.
 *
 * A dump says what refers to what, but not how: only the edge to an object's class is known as such, and the other
 * edges have no name. Constants and variables, except global variables, are named only in dumps written by memscope. A
 * dump does not list empty slots: each slot of the graph holds an object, in the order of the file.
 */
#ifndef MEMSCOPE_OBJSPACE_READER_H
#define MEMSCOPE_OBJSPACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/growing_array.h"
#include "base/status.h"
#include "dump/address_index.h"
#include "dump/heap_dump.h"
#include "graph/heap_graph.h"

/* A flag in a type: the object's last reference is to its class. Ruby's type numbers have five bits. */
#define MEMSCOPE_HAS_CLASS 0x80

struct memscope_class_line {
    uint64_t superclass;
    uint32_t node, name, label;
    bool singleton;
};

struct memscope_named_reference {
    uint64_t reference; /* its index among all references */
    memscope_edge_name name;
};

struct memscope_root_line {
    uint64_t first;
    uint32_t count, category;
};

struct memscope_objspace_reader {
    int file;
    enum memscope_status status; /* of reading so far */
    uint64_t bytes;              /* read */
    uint64_t unreadable_lines;
    uint64_t missing_references; /* to objects that are not in the dump */
    bool truncated;              /* the file ends within a line */

    /* To be set between opening and reading: keeps what identifies an object in another dump of the process. */
    bool is_compared;

    uint32_t object_count;
    struct memscope_growing_array text; /* what was read, but not parsed yet */
    size_t text_length;
    bool ended, tells_slot_bytes, has_broken_names;

    /* By object: */
    struct memscope_growing_array addresses, types, bytes_of, slot_bytes, labels, first_references;
    struct memscope_growing_array references; /* addresses; an object's class, if it has one, comes last */
    uint64_t reference_count;
    struct memscope_growing_array named_references; /* ascending by reference */
    uint64_t named_count;

    struct memscope_growing_array sites; /* by object; names: "app/order.rb:12"; 0: not stated */
    bool tells_sites;
    /*
     * By object, only if is_compared: 64 bits, the number of garbage collections before, plus 1; 0: not stated.
     * Addresses and the index are then kept after the graph is made.
     */
    struct memscope_growing_array generations;
    struct memscope_address_index index;

    struct memscope_growing_array classes; /* struct memscope_class_line */
    uint32_t class_count;
    struct memscope_growing_array root_lines, root_references;
    uint32_t root_line_count;
    uint64_t root_reference_count;
    char category_text[MEMSCOPE_ROOT_CATEGORIES][32];

    struct memscope_names names;       /* until the graph has them */
    struct memscope_heap_graph *graph; /* NULL until it is made */
    struct memscope_growing_array edge_names, ids, seen;
};

/* The descriptor stays the caller's, and must stay open until the reading ends. */
enum memscope_status memscope_objspace_reader_open(struct memscope_objspace_reader *reader, int file);

/*
 * Reads on for some tens of milliseconds, or until a signal interrupts it. True while there is more: call again. When
 * there is no more, status says whether all could be read.
 */
bool memscope_objspace_reader_continue(struct memscope_objspace_reader *reader);

/* Of a dump that was read in full: whether a reference in 1,000 leads to no object, as when whole lines were cut off.
 */
bool memscope_objspace_lacks_objects(const struct memscope_objspace_reader *reader);

/* Whether the dump states any roots. ObjectSpace.dump_all(since:) leaves them out. */
static inline bool memscope_objspace_has_roots(const struct memscope_objspace_reader *reader) {
    return reader->root_line_count > 0;
}

/* Idempotent; a zeroed reader is closed. */
void memscope_objspace_reader_close(struct memscope_objspace_reader *reader);

#endif
