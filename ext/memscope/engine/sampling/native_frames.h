/*
 * The native frames of the calling thread, by the unwind tables of the loaded objects.
 *
 * Runs inside malloc, so it is used only where the unwinder neither allocates nor takes the dynamic linker's lock: with
 * a libgcc and a glibc (2.35) that find unwind tables without that lock (object_lookup.h). Elsewhere stacks have no
 * native frames.
 */
#pragma once

#include "elf/shared_objects.h"

/*
 * Stores up to `room` return addresses in `words`, leaf first, and returns their number. Skips leading frames of this
 * library and of the object set with memscope_native_frames_skip_object_of. With leaf_only, stops at the first known VM
 * entry point.
 */
unsigned memscope_native_frames(uint64_t *words, unsigned room, bool leaf_only);

/*
 * Does the same with libgcc's unwinder alone, slower by an order of magnitude. The fallback of memscope_native_frames.
 */
unsigned memscope_native_frames_by_libgcc(uint64_t *words, unsigned room, bool leaf_only);

/*
 * Returns true if the object is libgcc's unwinder. While it holds a lock of its own, the unwinder allocates, for the
 * frames that a JIT compiler registers (gcc 12 libgcc/unwind-dw2-fde.c, init_object; since 13 unwind-dw2-btree.h,
 * btree_allocate_node). A sample of such an allocation would unwind and so wait for that lock, so the imports of this
 * object are not patched.
 */
bool memscope_native_frames_unwinder(const struct memscope_shared_object *object);

/* Resident bytes of the cached unwind rules. */
size_t memscope_native_frames_resident_bytes(void);

/*
 * Learns the VM entry points at which leaf_only stops: the innermost `count` functions on the stack, at most 4, without
 * the leading frames of this library. Call once, before the first unwinding.
 */
void memscope_native_frames_learn_callers(unsigned count);

/* Also skips leading frames of the object that contains address, from now on. NULL skips only this library's again. */
void memscope_native_frames_skip_object_of(const void *address);

/*
 * Returns true if the stack has room for a sample, which takes up to 3.1 KB of it (measured on x86-64 with glibc 2.36).
 *
 * On an alternate signal stack, returns false if too little room is left: a guard page or other data may lie below it.
 * On any other stack, reads a byte 4 KB below: at the end of the stack the read faults, and Ruby turns a fault on the
 * stack pointer's page into an exception (signal.c 3.1.2, check_stack_overflow, line 832) that jumps out of malloc.
 * Call it before taking a lock or any other resource. (Without the probe, 160 stack overflows did no harm: to do harm,
 * a sample must reach the end of the stack while it holds something.)
 */
bool memscope_probe_stack(void);
