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
 *   engine/sampled_stack.h, sample_table.h, native_frames.h  malloc's samples: where, how many, by whom
 *   engine/imports.h, import_sampler.h, jemalloc_profile.h   the two ways to take them
 *   malloc_profile.h, malloc_profile_interned.h              Ruby's frames of a sample, and what it was for
 *   ruby_private.h, ruby_heap.c, heap_pins.c                 Ruby's heap pages and slots
 *   values.c, *_binding.c, snapshot.c                        structs in, VALUEs out
 *
 * engine/ knows no Ruby. The binding knows no mallctl and no /proc. Errors go up as enum memscope_status and become
 * reasons here; nothing longjmps through the engine.
 */
#include "memscope.h"

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
    Init_memscope_heap_compaction();
    Init_memscope_ruby_heap_binding();
    Init_memscope_ledger();
    Init_memscope_arenas();
    Init_memscope_levers();
    Init_memscope_program();
    Init_memscope_malloc_profile();
    Init_memscope_malloc_profile_tags();
    Init_memscope_malloc_profile_binding();
}
