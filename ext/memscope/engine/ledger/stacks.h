/*
 * Thread and fiber stacks, live and cached.
 *
 * glibc (since 2.34) describes its thread list in exported constants, for debuggers (nptl_db/structs.def,
 * "_thread_db_*"). Each thread's descriptor in the list holds the address and size of its stack, so the bounds are
 * exact, whatever the size and however the kernel merged the mappings. With other C libraries, threads are
 * MEMSCOPE_UNSUPPORTED.
 */
#pragma once

#include "base/status.h"
#include "ledger/claims.h"
#include "ledger/images.h"

struct memscope_stack_counts {
    uint64_t live_threads;  /* besides the main one */
    uint64_t cached_stacks; /* of threads that are gone */
    uint64_t fiber_stacks;  /* in use or pooled */
};

/*
 * Claims every thread's stack but the main thread's, which the kernel names. Returns MEMSCOPE_UNSUPPORTED without the
 * list.
 */
enum memscope_status memscope_stacks_claim_threads(const struct memscope_thread_symbols *symbols,
                                                   const struct memscope_search *search,
                                                   struct memscope_stack_counts *counts);

/*
 * Claims the chunks that hold the stacks of M:N threads (all threads of Ractors other than the main one, and all
 * threads with RUBY_MN_THREADS=1). Recognises a chunk by the footer that Ruby writes at the end of each machine stack
 * (thread_pthread_mn.c, nt_machine_stack_footer). vm_bytes and machine_bytes are the stack sizes of one such thread, 0
 * if this Ruby has none.
 */
void memscope_stacks_claim_migrating(const struct memscope_search *search, size_t vm_bytes, size_t machine_bytes);

/*
 * Claims pools of fiber stacks: runs of two or more stacks of fiber_bytes, each right above its guard page, as Ruby's
 * fiber pool lays them out (cont.c, fiber_pool_expand).
 */
void memscope_stacks_claim_fibers(const struct memscope_search *search, size_t fiber_bytes,
                                  struct memscope_stack_counts *counts);
