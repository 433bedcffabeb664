/*
 * What the binding's files share: the Ruby modules, and the few ways in which structs become VALUEs.
 *
 * The GVL is held in every function declared here. The engine's headers know nothing of this file.
 */
#ifndef MEMSCOPE_H
#define MEMSCOPE_H

#include "extconf.h"

#include <ruby.h>

#include "status.h"

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

void Init_memscope_allocator(void);
void Init_memscope_process(void);
void Init_memscope_cgroup(void);
void Init_memscope_snapshot(void);
void Init_memscope_ruby_heap(void);
void Init_memscope_heap_pins(void);
void Init_memscope_heap_compaction(void);
void Init_memscope_ruby_heap_binding(void);
void Init_memscope_ledger(void);
void Init_memscope_arenas(void);
void Init_memscope_levers(void);
void Init_memscope_program(void);
void Init_memscope_malloc_profile(void);
void Init_memscope_malloc_profile_tags(void);
void Init_memscope_malloc_profile_binding(void);

#endif
