/*
 * Thread and fiber stacks, live and cached.
 *
 * Threads: glibc (since 2.34) describes its own thread list in exported constants, for debuggers (nptl_db/structs.def,
 * "_thread_db_*"). Each descriptor in the list says where its stack begins and how large it is, so that stacks are
 * exact whatever their size and wherever the kernel merged them. Other C libraries: not found, and said so.
 */
#ifndef MEMSCOPE_STACKS_H
#define MEMSCOPE_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/own_memory.h"
#include "base/status.h"
#include "kernel/mappings.h"
#include "ledger/claims.h"
#include "ledger/images.h"

struct memscope_stack_counts {
    uint64_t live_threads;  /* besides the main one */
    uint64_t cached_stacks; /* of threads that are gone */
    uint64_t fiber_stacks;  /* in use or pooled */
};

/* Claims every stack but the main thread's, which the kernel names. MEMSCOPE_UNSUPPORTED where there is no such list.
 */
enum memscope_status memscope_stacks_claim_threads(const struct memscope_thread_symbols *symbols,
                                                   const struct memscope_own_memory *memory,
                                                   struct memscope_claims *claims,
                                                   struct memscope_stack_counts *counts);

/*
 * Claims pools of fiber stacks: runs of at least two pairs of a guard page and fiber_bytes behind it, as Ruby's
 * fiber pool lays them out (cont.c, fiber_pool_expand).
 */
void memscope_stacks_claim_fibers(const struct memscope_mappings *mappings, size_t fiber_bytes,
                                  struct memscope_claims *claims, struct memscope_stack_counts *counts);

#endif
