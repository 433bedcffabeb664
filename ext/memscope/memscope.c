/*
 * memscope's extension. A reading order for its rooms (docs/architecture.md; rake lint:rooms checks the includes):
 *
 *   engine/base       what every reader stands on: status, scratch memory, reading this process's memory, text files
 *   engine/kernel     the kernel's side: process, cgroup, mappings, residency, sharing; what a program does at exec
 *   engine/elf        loaded objects, and the functions that an address lies in
 *   engine/malloc     who serves malloc, what it holds, its settings, and the levers that give memory back
 *   engine/ledger     who owns which page; the sum
 *   engine/sampling   malloc's samples: the two ways to take them, native frames, the table that counts them
 *   ruby              Ruby's heap pages, slots and frames; the only room with Ruby's private declarations
 *   values.h, bindings  structs in, VALUEs out
 *
 * engine/ knows no Ruby. bindings/ knows no mallctl and no /proc. Errors go up as enum memscope_status and become
 * reasons here; nothing longjmps through the engine.
 */
#include "values.h"

#include "init.h"

RUBY_FUNC_EXPORTED void Init_memscope(void);

void Init_memscope(void) {
    rb_mMemscope = rb_define_module("Memscope");
    rb_mMemscopeNative = rb_define_module_under(rb_mMemscope, "Native");
    Init_memscope_allocator();
    Init_memscope_process();
    Init_memscope_cgroup();
    Init_memscope_snapshot();
    Init_memscope_ruby_heap();
    Init_memscope_held_memory();
    Init_memscope_heap_pins();
    Init_memscope_ruby_heap_binding();
    Init_memscope_ledger();
    Init_memscope_arenas();
    Init_memscope_levers();
    Init_memscope_program();
    Init_memscope_malloc_profile();
    Init_memscope_malloc_profile_tags();
    Init_memscope_malloc_profile_binding();
}
