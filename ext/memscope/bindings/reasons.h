/*
 * Reasons: why a value is nil, missing or approximate. Each is an id, :id, or [:id, argument, …], and
 * lib/memscope/value/reasons.words has the sentences. An argument is a String, an Integer, a reason, or an Array of
 * these.
 */
#pragma once

#include "values.h"

#include "base/status.h"

static inline VALUE memscope_reason(const char *id) {
    return memscope_symbol(id);
}

/* A reason with the arguments of its sentence. */
#define memscope_reason_of(id, ...)                                                                                    \
    rb_ary_new_from_values(sizeof((VALUE[]){Qnil, __VA_ARGS__}) / sizeof(VALUE),                                       \
                           (VALUE[]){memscope_symbol(id), __VA_ARGS__})

static inline void memscope_set_reason(VALUE reasons, const char *key, const char *id) {
    memscope_hash_set(reasons, key, memscope_reason(id));
}

#define memscope_set_reason_of(reasons, key, ...) memscope_hash_set(reasons, key, memscope_reason_of(__VA_ARGS__))

static inline VALUE memscope_status_reason(enum memscope_status status) {
    return memscope_reason(memscope_status_id(status));
}

/* The reason that `what`, a file or a call, could not be read. */
static inline VALUE memscope_unread(const char *what, enum memscope_status status) {
    return memscope_reason_of("unread", rb_utf8_str_new_cstr(what), memscope_status_reason(status));
}

struct memscope_held_memory;

/*
 * Sets the reason for held_by_objects_bytes: the first few types of objects left out, and sizes of IO::Buffers that are
 * not malloc memory. Caller holds the GVL.
 */
void memscope_set_left_out_reason(VALUE reasons, const struct memscope_held_memory *held);

/* Likewise sets a reason for `key`, which also lists objects whose size is never read: fibers and threads. */
void memscope_set_unasked_reason(VALUE reasons, const char *key, const struct memscope_held_memory *held);
