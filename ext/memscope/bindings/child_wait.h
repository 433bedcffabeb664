/*
 * For bindings that let a forked child read: whether there is room for the child, and how they wait for its answer; and
 * for bindings that read what is private, which no child must share meanwhile.
 */
#ifndef MEMSCOPE_CHILD_WAIT_H
#define MEMSCOPE_CHILD_WAIT_H

#include "bindings/reasons.h"

#include "fork/fork_cost.h"
#include "fork/forked_child.h"

/* Why there is no room, or nil if there is. */
VALUE memscope_reason_without_room(const struct memscope_fork_room *room);

/* Why no child was started. */
VALUE memscope_reason_child_refused(enum memscope_status status);

/*
 * Waits without the GVL, and adds the time to *without_gvl_ns. Never returns INTERRUPTED: an interrupt of this thread
 * is raised, and the caller's rb_ensure then ends the child.
 */
enum memscope_forked_progress memscope_child_wait(struct memscope_forked_child *child, void *answer, size_t size,
                                                  uint64_t *without_gvl_ns);

/* Why a child did not answer. */
VALUE memscope_reason_unanswered(enum memscope_forked_progress progress);

/*
 * Lets `read` run without the GVL while no other thread's child lives; waits up to half a second for that. `read`
 * returns whether a child spoilt it (MEMSCOPE_SHARED); then it runs again, up to three times in all. Returns the
 * nanoseconds.
 */
uint64_t memscope_without_children(bool (*read)(void *argument), void *argument);

#endif
