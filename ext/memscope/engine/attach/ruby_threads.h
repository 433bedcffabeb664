/*
 * Which of the stopped threads run Ruby, which of them holds the GVL, and the one to work in.
 */
#pragma once

#include "attach/ruby_target.h"
#include "attach/tracees.h"

/*
 * Offsets in Ruby's private structures (vm_core.h), the same from 3.1 to 4.0. Whoever uses one checks what it finds:
 * a context's thread has a Ractor, in which running_ec is the context of a thread; the flags of interrupts have known
 * values.
 */
#define MEMSCOPE_CONTEXT_INTERRUPTS 0x20 /* of a context: interrupt_flag, then interrupt_mask, 32 bits */
#define MEMSCOPE_CONTEXT_THREAD 0x30     /* thread_ptr */
#define MEMSCOPE_THREAD_RACTOR 0x18      /* of a thread: ractor */

/* The context of a thread of the target, or of a copy of it; 0 if it is not a thread of Ruby. */
uint64_t memscope_ruby_context(const struct memscope_ruby_target *target, pid_t pid,
                               const struct memscope_registers *registers);

/*
 * Sets the context of each stopped thread. Returns the thread to work in: the one that holds the GVL if it runs, else
 * one that is blocked in a system call, if possible not in a futex. NULL with a refusal if there is none.
 */
struct memscope_tracee *memscope_ruby_threads_choose(const struct memscope_ruby_target *target,
                                                     struct memscope_tracees *tracees);
