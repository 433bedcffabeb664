/*
 * What bindings share: the Ruby modules, and how structs become VALUEs.
 *
 * Every function here needs the GVL, but memscope_now_ns. The engine does not know this file.
 */
#ifndef MEMSCOPE_VALUES_H
#define MEMSCOPE_VALUES_H

#include "extconf.h"

#include <ruby.h>

extern VALUE rb_mMemscope;       /* Memscope */
extern VALUE rb_mMemscopeNative; /* Memscope::Native, a private constant */

/* A Symbol for a C string constant. */
static inline VALUE memscope_symbol(const char *name) {
    return ID2SYM((rb_intern)(name)); /* the macro would keep one ID for all callers */
}

static inline void memscope_hash_set(VALUE hash, const char *key, VALUE value) {
    rb_hash_aset(hash, memscope_symbol(key), value);
}

/* {tier:, wall_us:, gvl_us:, scratch_bytes:}, as every reading carries it. */
VALUE memscope_cost(const char *tier, uint64_t wall_ns, uint64_t gvl_ns, size_t scratch_bytes);

/* Does the work without the GVL and returns the nanoseconds that it took. */
uint64_t memscope_without_gvl(void (*work)(void *argument), void *argument);

/* NULL and "" become nil. Marked as UTF-8, whatever the bytes. */
VALUE memscope_text_or_nil(const char *text);

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t memscope_now_ns(void);

#endif
