/*
 * Shared by the bindings: the Ruby modules, and functions that turn C values into VALUEs.
 *
 * Every function here needs the GVL, except memscope_clock_ns and memscope_now_ns. The engine does not include this
 * file.
 */
#pragma once

#include "extconf.h"

#include <ruby.h>
#include <time.h>

#include "record_structs.h"

extern VALUE rb_mMemscope;       /* Memscope */
extern VALUE rb_mMemscopeNative; /* Memscope::Native, a private constant */

/* A Symbol for a C string constant. */
static inline VALUE memscope_symbol(const char *name) {
    return ID2SYM((rb_intern)(name)); /* not the macro: its static cache would give all callers the first ID */
}

static inline void memscope_hash_set(VALUE hash, const char *key, VALUE value) {
    rb_hash_aset(hash, memscope_symbol(key), value);
}

struct memscope_pair {
    const char *key;
    VALUE value;
};

/* Sets the pairs, as in memscope_hash_add(hash, {"name", name}, {"bytes", bytes}), in a hash or a new one. Returns it.
 */
VALUE memscope_set_pairs(VALUE hash, const struct memscope_pair *pairs, size_t count);
#define memscope_hash_add(hash, ...)                                                                                   \
    memscope_set_pairs(hash, (const struct memscope_pair[]){__VA_ARGS__},                                              \
                       sizeof((struct memscope_pair[]){__VA_ARGS__}) / sizeof(struct memscope_pair))
#define memscope_hash_of(...) memscope_hash_add(rb_hash_new(), __VA_ARGS__)

/* The Integer that the hash has under a key, 1 for true, 0 if the hash does not have the key. */
static inline size_t memscope_hash_get_size(VALUE hash, const char *key) {
    VALUE value = rb_hash_lookup(hash, memscope_symbol(key));

    return FIXNUM_P(value) ? FIX2ULONG(value) : RTEST(value);
}

struct memscope_names;

/* Sets the hash's values for all members of a record. names: those of the members that are names, else NULL. */
void memscope_set_members(VALUE hash, const struct memscope_record *record, const void *values,
                          const struct memscope_names *names);

/* A Hash of a record's members, and an Array of such Hashes. */
VALUE memscope_record_hash(const struct memscope_record *record, const void *values,
                           const struct memscope_names *names);
VALUE memscope_record_list(const struct memscope_record *record, const void *rows, size_t count,
                           const struct memscope_names *names);

/*
 * For each record NAME: memscope_NAME_hash(values), or memscope_NAME_named_hash(values, names) if members are names,
 * and memscope_NAME_list(rows, count, names).
 */
#define RECORD(name)                                                                                                   \
    static inline VALUE memscope_##name##_hash(const struct memscope_##name *values) {                                 \
        return memscope_record_hash(&memscope_##name##_record, values, NULL);                                          \
    }                                                                                                                  \
    static inline VALUE memscope_##name##_named_hash(const struct memscope_##name *values,                             \
                                                     const struct memscope_names *names) {                             \
        return memscope_record_hash(&memscope_##name##_record, values, names);                                         \
    }                                                                                                                  \
    static inline VALUE memscope_##name##_list(const struct memscope_##name *rows, size_t count,                       \
                                               const struct memscope_names *names) {                                   \
        return memscope_record_list(&memscope_##name##_record, rows, count, names);                                    \
    }
MEMSCOPE_RECORDS(RECORD)
#undef RECORD

/* The cost that every reading carries: {tier:, wall_us:, gvl_us:, scratch_bytes:}. */
VALUE memscope_cost(const char *tier, uint64_t wall_ns, uint64_t gvl_ns, size_t scratch_bytes);

/* Sets the reasons of a reading that began at start_ns, and its cost until now. Returns the reading. */
VALUE memscope_finish(VALUE reading, VALUE reasons, const char *tier, uint64_t start_ns, uint64_t without_gvl_ns,
                      size_t scratch_bytes);

/*
 * Does the work without the GVL. Returns the nanoseconds until this thread has the GVL again. A copy (base/copy.h)
 * keeps its GVL.
 */
uint64_t memscope_without_gvl(void (*work)(void *argument), void *argument);

/* What the call returns, nil if it raises a StandardError. A signal, Thread#kill and an exit go on to the caller. */
VALUE memscope_attempt(VALUE (*call)(VALUE argument), VALUE argument);

/* An Integer, or nil for MEMSCOPE_UNKNOWN. */
static inline VALUE memscope_number_or_nil(uint64_t number) {
    return number == MEMSCOPE_UNKNOWN ? Qnil : ULL2NUM(number);
}

/* A String tagged as UTF-8, whatever its bytes, or nil for NULL and "". */
VALUE memscope_text_or_nil(const char *text);

/* A String tagged as UTF-8, or nil for an unknown text. */
VALUE memscope_text_value(struct memscope_text text);

/* Such a String: the name with this number, as far as its first NUL. nil if it is empty. */
VALUE memscope_name_value(const struct memscope_names *names, uint64_t number);

uint64_t memscope_clock_ns(clockid_t clock);

/* CLOCK_MONOTONIC. */
static inline uint64_t memscope_now_ns(void) {
    return memscope_clock_ns(CLOCK_MONOTONIC);
}
