/*
 * Records: structs whose members are fields that a table in lib declares (record_structs.h, which record_structs.rb
 * makes). With a description of the members, one function serves all records.
 */
#pragma once

#include <math.h>
#include <stdint.h>

#include "base/text.h"

/*
 * Unknown values, nil in Ruby. An unknown double is NAN, and an unknown text has no start. Set all numbers of a struct:
 * those that an initializer leaves out are 0, not unknown. In memscope_NAME_unknown, all members of the record NAME are
 * unknown.
 */
#define MEMSCOPE_UNKNOWN UINT64_MAX
#define MEMSCOPE_UNKNOWN_SIGNED INT64_MIN

enum memscope_member_kind {
    MEMSCOPE_MEMBER_NUMBER,  /* uint64_t */
    MEMSCOPE_MEMBER_SIGNED,  /* int64_t */
    MEMSCOPE_MEMBER_BOOLEAN, /* int64_t: 0, 1 or not known */
    MEMSCOPE_MEMBER_REAL,    /* double */
    MEMSCOPE_MEMBER_ROUNDED, /* double: the nearest integer is the value, which is unknown if it is not finite */
    MEMSCOPE_MEMBER_NAME,    /* uint64_t: a number in a table of names (graph/names.h), 0 for no name */
    MEMSCOPE_MEMBER_TEXT,    /* struct memscope_text */
    MEMSCOPE_MEMBER_SYMBOL,  /* struct memscope_text */
};

/* Members of a struct: those of a record, which are also one member that has the record's name. */
#define MEMSCOPE_EMBED(name)                                                                                           \
    union {                                                                                                            \
        struct memscope_##name name;                                                                                   \
        struct {                                                                                                       \
            MEMSCOPE_FIELDS_##name                                                                                     \
        };                                                                                                             \
    }

struct memscope_member {
    const char *name;
    uint16_t offset;
    uint8_t kind;
};

struct memscope_record {
    size_t size, count;
    const struct memscope_member *members;
    uintptr_t *keys; /* by member, for the bindings, 0 at first */
};
