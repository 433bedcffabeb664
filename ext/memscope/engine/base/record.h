/*
 * Records: structs whose members are fields that a table in lib declares (record_structs.h, which record_structs.rb
 * makes). A description of the members lets one function do for all records what would else be written for each.
 */
#ifndef MEMSCOPE_RECORD_H
#define MEMSCOPE_RECORD_H

#include <math.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/*
 * Values that are not known: nil in Ruby. A double that is not known is NAN; a text that is not known has no start.
 * Code that makes a struct sets all numbers: those that an initializer leaves out are 0, not unknown.
 */
#define MEMSCOPE_UNKNOWN UINT64_MAX
#define MEMSCOPE_UNKNOWN_SIGNED INT64_MIN

enum memscope_member_kind {
    MEMSCOPE_MEMBER_NUMBER,  /* uint64_t */
    MEMSCOPE_MEMBER_SIGNED,  /* int64_t */
    MEMSCOPE_MEMBER_BOOLEAN, /* int64_t: 0, 1 or not known */
    MEMSCOPE_MEMBER_REAL,    /* double */
    MEMSCOPE_MEMBER_TEXT,    /* struct memscope_text */
    MEMSCOPE_MEMBER_SYMBOL,  /* struct memscope_text */
};

struct memscope_member {
    const char *name, *allowed; /* allowed: the only values of a symbol, between commas; "" if any is */
    uint16_t offset;
    uint8_t kind;
};

struct memscope_record {
    uint64_t version; /* differs for structs with other members */
    size_t size, count;
    const struct memscope_member *members;
};

/*
 * The form of a record in a file or a pipe, in this machine's byte order: "memscope", the version, the length of the
 * whole, and the members. A number takes eight bytes; a text follows its length, which is MEMSCOPE_UNKNOWN for none.
 * Returns the bytes that all this takes; if that is more than the capacity, what was written is not a record.
 */
size_t memscope_record_write(const struct memscope_record *record, const void *values, char *buffer, size_t capacity);

/*
 * Reads what memscope_record_write wrote, perhaps in another process; texts stay in the buffer. Sets *length to the
 * bytes that the record takes. Returns MEMSCOPE_TRUNCATED if the buffer ends before the record, MEMSCOPE_UNSUPPORTED
 * for another version, and MEMSCOPE_MALFORMED for anything else that is not such a record.
 */
enum memscope_status memscope_record_read(const struct memscope_record *record, const char *buffer, size_t size,
                                          void *values, size_t *length);

#endif
