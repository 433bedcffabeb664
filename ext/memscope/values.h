/*
 * What the binding's files share: the Ruby modules, and the few ways in which structs become VALUEs.
 *
 * The GVL is held in every function declared here. The engine's headers know nothing of this file.
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

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t memscope_now_ns(void);

#endif
