/*
 * The names of classes, variables and constants, as numbers in a struct memscope_names (engine/graph/names.h).
 *
 * Reads existing Strings only: allocates no Ruby object, calls no method, takes no malloc memory, and, while only one
 * Ractor is alive, waits for no lock. So it works in a forked child, and during a walk of the heap.
 */
#pragma once

#include <ruby.h>

#include "base/status.h"
#include "graph/names.h"

struct memscope_known_name; /* a class or an ID, and its number */

struct memscope_class_names {
    struct memscope_names *names;
    struct memscope_known_name *known; /* hash table in mapped memory */
    size_t known_count;
    uint32_t unkept; /* the number of a name that the table has no room for */
};

/* `names` must be open, and stays the caller's. */
enum memscope_status memscope_class_names_open(struct memscope_class_names *class_names, struct memscope_names *names);
void memscope_class_names_close(struct memscope_class_names *class_names);

/*
 * The name of an object's class or, for an anonymous class, its nearest ancestor with a name: "Order (anonymous
 * subclass)". An object without a class is named by its kind or type, "imemo_env", "T_ARRAY", and one of a C extension
 * without a class of its own by memscope_data_type_of. Takes 10 to 30 ns for a class whose name is known already.
 */
uint32_t memscope_name_of_class_of(struct memscope_class_names *class_names, VALUE object);

/*
 * The name that C code gave to the type of a T_DATA, such as "VM/concurrent_set" or "mutex", if its class is hidden (0)
 * or Object. NULL for other objects and for types without a name. `class` is not a singleton class.
 */
const char *memscope_data_type_of(VALUE object, VALUE class);

/* Room for any name: class names are cut to 512 bytes. */
#define MEMSCOPE_CLASS_TEXT 544

/* False for the types of objects that Ruby code cannot reach, whose class pointer may be anything. */
static inline bool memscope_has_class(int type) {
    const uint32_t others = UINT32_C(1) << RUBY_T_IMEMO | UINT32_C(1) << RUBY_T_ICLASS | UINT32_C(1) << RUBY_T_NODE |
                            UINT32_C(1) << RUBY_T_ZOMBIE | UINT32_C(1) << RUBY_T_MOVED;

    return (others >> type & 1) == 0;
}

/* An object is named by its class or, if that is 0, by its type and, for a T_IMEMO, its kind. */
struct memscope_naming {
    VALUE class;
    int type, kind;
};

/* Works in the hook of the object's allocation, and at the end of a mark phase for an object that is garbage. */
struct memscope_naming memscope_naming_of(VALUE object);

/* Writes the name of memscope_name_of_class_of to `text`, without storing it, and returns its length. */
size_t memscope_write_naming(char text[MEMSCOPE_CLASS_TEXT], struct memscope_naming naming);
size_t memscope_write_class_of(char text[MEMSCOPE_CLASS_TEXT], VALUE object);

/* The number of a name from memscope_data_type_of. */
uint32_t memscope_name_of_data_type(struct memscope_class_names *class_names, const char *name);

/* The name of a type, such as "T_ARRAY", or of a T_IMEMO's kind, such as "imemo_env". */
uint32_t memscope_name_of_type(struct memscope_class_names *class_names, int type, int kind);

/* A class's or module's own name, as above, or "#<Class:Owner>" for a singleton class. */
uint32_t memscope_name_of_module(struct memscope_class_names *class_names, VALUE module);

/* Returns true if a class or module has a name of its own, and is not a singleton class. */
bool memscope_is_named_module(VALUE module);

bool memscope_is_singleton_class(VALUE module);

/* The text of an ID, such as "@cache" or "HANDLERS", or 0 for an ID without a text. */
uint32_t memscope_name_of_id(struct memscope_class_names *class_names, ID id);

/* "T_STRING" for RUBY_T_STRING, "T_UNKNOWN" for a number that is not a type. */
const char *memscope_type_name(int type);
