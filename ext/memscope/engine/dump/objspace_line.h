/*
 * One line of ObjectSpace.dump_all: a flat JSON object on a line of its own. Strings escape newlines, so every newline
 * is the end of a line, whatever the line contains. Nothing is copied, and texts point into the line. No GVL. Allocates
 * nothing.
 */
#pragma once

#include <stdint.h>

#include "base/text.h"

/* Bytes after a line's newline that must be readable, though they mean nothing. */
#define MEMSCOPE_OBJSPACE_PADDING 32

#define MEMSCOPE_OBJSPACE_UNKNOWN_TYPE 0x1f

/* Texts are as in the file, with any escapes. */
struct memscope_objspace_line {
    uint64_t address, class_address, superclass; /* 0 for none */
    uint64_t bytes, slot_bytes;                  /* 0 if not stated */
    uint8_t type;                                /* Ruby's number, 0 for no object */
    bool root, singleton;
    struct memscope_text category; /* of roots */
    struct memscope_text name;     /* of a class or module, or of a singleton class's first real ancestor */
    struct memscope_text imemo_type;
    struct memscope_text data_type; /* the name that C code gave to a T_DATA's type: "VM/thread" */
    struct memscope_text file;      /* file of the allocation, at line_number, only if allocations were traced */
    uint64_t line_number;
    uint64_t generation;             /* garbage collections before its allocation, plus 1 */
    struct memscope_text edge_names; /* {"0":"HANDLERS"}, only in dumps written by memscope */
    uint32_t reference_count;
};

/*
 * Reads the line at text, which ends with a newline. Writes its references to the array, at most one for each
 * MEMSCOPE_OBJSPACE_REFERENCE bytes of the line. Returns the end of the object, or NULL if the line cannot be parsed.
 */
#define MEMSCOPE_OBJSPACE_REFERENCE 5
const char *memscope_objspace_line_read(const char *text, struct memscope_objspace_line *line, uint64_t *references);

/* Minimum bytes of an entry of edge_names: "0":"a", */
#define MEMSCOPE_OBJSPACE_EDGE_NAME 8

/*
 * Takes the first entry from edge_names: the name of the constant or variable whose value is the reference at *index.
 * Returns false if there are no more.
 */
bool memscope_objspace_edge_name_take(struct memscope_text *edge_names, uint64_t *index, struct memscope_text *name);

/* "STRING" for 5, and "UNKNOWN" for a number that is not a type of objects. */
const char *memscope_objspace_type_name(uint8_t type);

/*
 * Copies the text with its escapes decoded, until fewer than 3 bytes of capacity are left, and returns the length of
 * the copy. An escape that JSON does not have stays as it is.
 */
size_t memscope_objspace_unescape(struct memscope_text text, char *into, size_t capacity);
