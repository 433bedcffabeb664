/*
 * memscope's extension. A reading order for the directory:
 *
 *   engine/status.h, text_file.h, scratch.h, own_memory.h    what every reader stands on
 *   engine/process.h, cgroup.h, mappings.h, residency.h      the kernel's side
 *   engine/shared_objects.h, allocator.h, jemalloc.h, glibc.h  who serves malloc, and what it holds
 *   engine/jemalloc_arenas.h, glibc_arenas.h                 the same, arena by arena
 *   engine/stacks.h, ledger.h                                who owns which page; the sum
 *   engine/jemalloc_control.h, levers.h                      what is changed: giving memory back
 *   engine/program.h                                         what a file does when it is started
 *   ruby_private.h, ruby_heap.c, heap_pins.c                 Ruby's heap pages and slots
 *   *_binding.c, snapshot.c                                  structs in, VALUEs out
 *
 * engine/ knows no Ruby. The binding knows no mallctl and no /proc. Errors go up as enum memscope_status and become
 * reasons here; nothing longjmps through the engine.
 */
#include "memscope.h"

#include <time.h>

VALUE rb_mMemscope;
VALUE rb_mMemscopeNative;

uint64_t memscope_now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

VALUE memscope_cost(const char *tier, uint64_t wall_ns, uint64_t gvl_ns, size_t scratch_bytes) {
    VALUE cost = rb_hash_new();

    memscope_hash_set(cost, "tier", memscope_symbol(tier));
    memscope_hash_set(cost, "wall_us", ULL2NUM(wall_ns / 1000));
    memscope_hash_set(cost, "gvl_us", ULL2NUM(gvl_ns / 1000));
    memscope_hash_set(cost, "scratch_bytes", SIZET2NUM(scratch_bytes));
    return cost;
}

RUBY_FUNC_EXPORTED void Init_memscope(void);

void Init_memscope(void) {
    rb_mMemscope = rb_define_module("Memscope");
    rb_mMemscopeNative = rb_define_module_under(rb_mMemscope, "Native");
    Init_memscope_allocator();
    Init_memscope_process();
    Init_memscope_cgroup();
    Init_memscope_snapshot();
    Init_memscope_ruby_heap();
    Init_memscope_heap_pins();
    Init_memscope_ruby_heap_binding();
    Init_memscope_ledger();
    Init_memscope_arenas();
    Init_memscope_levers();
    Init_memscope_program();
}
