/*
 * The native frames of the calling thread, by the unwind tables of its objects.
 *
 * Runs inside malloc, so only where the unwinder neither allocates nor takes the dynamic linker's lock: with a libgcc
 * and a glibc (2.35) that find tables without it (object_lookup.h). Elsewhere stacks have no native frames.
 */
#ifndef MEMSCOPE_NATIVE_FRAMES_H
#define MEMSCOPE_NATIVE_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/shared_objects.h"

/*
 * Return addresses, leaf first, at most room. Skips leading frames of this library and of the skipped object. With
 * leaf_only, stops at the first known VM entry point.
 */
unsigned memscope_native_frames(uint64_t *words, unsigned room, bool leaf_only);

/* The same by libgcc's unwinder alone: slower by an order of magnitude, and what the above falls back to. */
unsigned memscope_native_frames_by_libgcc(uint64_t *words, unsigned room, bool leaf_only);

/*
 * Whether this is the object of libgcc's unwinder. It allocates under a lock of its own, for the frames that a JIT
 * compiler registers (gcc 12 libgcc/unwind-dw2-fde.c, init_object; since 13 unwind-dw2-btree.h, btree_allocate_node).
 * Sampling such a malloc would make it wait for that lock, so its imports are not patched.
 */
bool memscope_native_frames_unwinder(const struct memscope_shared_object *object);

/* Resident bytes of its tables. */
size_t memscope_native_frames_resident_bytes(void);

/*
 * Learns the VM entry points that leaf_only stops at: the innermost count callers of this library's calling function,
 * at most 4. Called once, before the first unwinding.
 */
void memscope_native_frames_learn_callers(unsigned count);

/* Also skips the frames of the object that address is in. NULL: of none. */
void memscope_native_frames_skip_object_of(const void *address);

/*
 * Whether the stack has room for a sample, which takes up to 3.1 KB of it (measured on x86-64 with glibc 2.36).
 *
 * False on a signal handler's own stack that has too little: it may have a guard, or other data, below it. Of other
 * stacks it reads from 4 KB below: at the end of one Ruby makes an exception of the fault, where it is on the stack
 * pointer's page (signal.c 3.1.2, check_stack_overflow in line 832), and jumps out of malloc: that has to happen before
 * anything is held. (Left out, it did not fail at 160 ends of stacks: a sample has to meet the end while it holds
 * something.)
 */
bool memscope_probe_stack(void);

#endif
