/*
 * Reads a dump by ObjectSpace.dump_all, of any Ruby from 2.7 on, into a heap graph. The file is read in pieces into
 * memory of the reader's own. It may be a pipe, and may be cut short during the reading. A line that cannot be parsed
 * is left out and counted. No GVL, no malloc. For one thread at a time.
 *
 * Before Ruby 3.2, a traced dump writes other memory after each byte of a method's name that is not ASCII, even quotes
 * and newlines (ext/objspace/objspace_dump.c, dump_append_string_value). Such a name is skipped, and the rest of its
 * line is read.
 *
 * A dump states the references of an object, but not their kind: only the edge to an object's class is known as such,
 * and the other edges have no name. Constants and variables, except global variables, are named only in dumps written
 * by memscope. A dump does not list empty slots, so each slot of the graph holds an object, in the order of the file.
 */
#pragma once

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
    uint64_t reference; /* index among all references */
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
    bool truncated;              /* set if the file ends within a line */

    /* Set between opening and reading: keeps the data that identifies an object in another dump of the process. */
    bool is_compared;
    /* Set likewise: gives the dump its ids. */
    bool is_converted;

    char *text; /* read, but not parsed yet */
    size_t text_length;
    bool ended, has_roots /* false for ObjectSpace.dump_all(since:) */, tells_slot_bytes, tells_sites, has_broken_names;

    uint32_t object_count;
    /* By object: */
    uint64_t *addresses, *class_addresses; /* class: 0 for none */
    uint32_t *reference_counts;
    uint32_t *sites; /* names such as "app/order.rb:12", 0 if not stated */
    /*
     * Only if is_compared: garbage collections before its allocation, plus 1, or 0 if not stated. Addresses and the
     * index are then kept after the graph is made.
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
     * The objects' types, sizes and names while the dump is read. The rest, and the dump, are complete once the graph
     * is made. The reader must not be moved from then on, but names may be added.
     */
    struct memscope_heap_graph graph;
    struct memscope_heap_dump dump;
    uint32_t *ids;
    struct memscope_module_name *modules;
};

/* The descriptor stays the caller's, and must stay open until the reading ends. */
enum memscope_status memscope_objspace_reader_open(struct memscope_objspace_reader *reader, int file);

/*
 * Reads on for some tens of milliseconds, or until a signal interrupts it. Returns true while there is more: call
 * again. After the end, status is OK if all could be read.
 */
bool memscope_objspace_reader_continue(struct memscope_objspace_reader *reader);

/* Returns true if a reference in 1,000 leads to no object, as when lines were cut off. For a dump read in full. */
bool memscope_objspace_lacks_objects(const struct memscope_objspace_reader *reader);

/* Idempotent. A zeroed reader is closed. */
void memscope_objspace_reader_close(struct memscope_objspace_reader *reader);
