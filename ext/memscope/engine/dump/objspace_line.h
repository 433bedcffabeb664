/*
 * One line of ObjectSpace.dump_all: a flat JSON object on a line of its own. Strings escape newlines, so every newline
 * is the end of a line, whatever the line contains. Nothing is copied: texts point into the line. No GVL; allocates
 * nothing.
 */
#ifndef MEMSCOPE_OBJSPACE_LINE_H
#define MEMSCOPE_OBJSPACE_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many bytes after a line's newline must be readable, though they mean nothing. */
#define MEMSCOPE_OBJSPACE_PADDING 16

/* An object of a type that this reader does not know. */
#define MEMSCOPE_OBJSPACE_UNKNOWN_TYPE 0x1f

struct memscope_objspace_text {
    const char *start; /* as in the file: may have escapes */
    size_t length;
};

struct memscope_objspace_line {
    uint64_t address, class_address, superclass; /* 0: none */
    uint64_t bytes, slot_bytes;                  /* 0: not stated */
    uint8_t type;                                /* Ruby's number; 0: no object */
    bool root, singleton;
    struct memscope_objspace_text category; /* of roots */
    struct memscope_objspace_text name;     /* of a class or module; of a singleton class, its first real ancestor's */
    struct memscope_objspace_text imemo_type;
    struct memscope_objspace_text data_type; /* the name that C code gave to a T_DATA's type: "VM/thread" */
    struct memscope_objspace_text file; /* where it was allocated, at line_number; only if allocations were traced */
    uint64_t line_number;
    uint64_t generation;                      /* how many garbage collections came before its allocation, plus 1 */
    struct memscope_objspace_text edge_names; /* {"0":"HANDLERS"}: only in dumps that memscope wrote */
    uint32_t reference_count;
};

/*
 * Reads the line at text, which ends with a newline. Writes its references to the array: at most one for each
 * MEMSCOPE_OBJSPACE_REFERENCE bytes of the line. Returns the end of the object, or NULL if the line cannot be parsed.
 */
#define MEMSCOPE_OBJSPACE_REFERENCE 5
const char *memscope_objspace_line_read(const char *text, struct memscope_objspace_line *line, uint64_t *references);

/* No entry of edge_names has fewer bytes: "0":"a", */
#define MEMSCOPE_OBJSPACE_EDGE_NAME 8

/*
 * Takes the first entry from edge_names: the name of the constant or variable whose value is the reference at *index.
 * False if there are no more.
 */
bool memscope_objspace_edge_name_take(struct memscope_objspace_text *edge_names, uint64_t *index,
                                      struct memscope_objspace_text *name);

/* "STRING" for 5; "UNKNOWN" for a number that is not a type of objects. */
const char *memscope_objspace_type_name(uint8_t type);

/*
 * Copies the text with its escapes decoded, until fewer than 3 bytes of capacity are left; returns the length of the
 * copy. An escape that JSON does not know stays as it is.
 */
size_t memscope_objspace_unescape(struct memscope_objspace_text text, char *into, size_t capacity);

#endif
