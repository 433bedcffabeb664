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

#include "base/status.h"
#include "dump/address_index.h"
#include "dump/heap_dump.h"
#include "graph/heap_graph.h"

struct memscope_class_line {
    uint64_t superclass;
    uint32_t node, name;
    bool singleton;
};

struct memscope_named_reference {
    uint64_t reference; /* its index among all references */
    memscope_edge_name name;
};

struct memscope_root_reference {
    uint64_t address;
    uint32_t category;
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

    char *text; /* what was read, but not parsed yet */
    size_t text_length;
    bool ended, has_roots /* false: by ObjectSpace.dump_all(since:) */, tells_slot_bytes, tells_sites, has_broken_names;

    uint32_t object_count;
    /* By object: */
    uint64_t *addresses, *class_addresses; /* class: 0: none */
    uint64_t *first_references;            /* the index of its first reference */
    uint32_t *sites;                       /* names: "app/order.rb:12"; 0: not stated */
    /*
     * Only if is_compared: how many garbage collections came before, plus 1; 0: not stated. Addresses and the index are
     * then kept after the graph is made.
     */
    uint64_t *generations;
    struct memscope_address_index index;

    uint64_t *references; /* addresses */
    uint64_t reference_count;
    struct memscope_named_reference *named_references; /* ascending by reference */
    uint64_t named_count;
    struct memscope_class_line *classes; /* ascending by node */
    uint32_t class_count;
    struct memscope_root_reference *roots;
    uint64_t root_count;
    char category_text[MEMSCOPE_ROOT_CATEGORIES][32];

    /*
     * What each object is, as it is read, and the names; the rest, and the dump, once the graph is made. The reader
     * must not be moved from then on, but names may be added.
     */
    struct memscope_heap_graph graph;
    struct memscope_heap_dump dump;
    uint32_t *ids;
    struct memscope_module_name *modules;
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

/* Idempotent; a zeroed reader is closed. */
void memscope_objspace_reader_close(struct memscope_objspace_reader *reader);

#endif
