/*
 * What a fork of this process costs: how long it stops the process, and how much memory the child may take. Also the
 * cost of the work that the child, or else the process itself, does.
 */
#ifndef MEMSCOPE_FORK_COST_H
#define MEMSCOPE_FORK_COST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/*
 * Predicts the CPU time of a fork: the kernel copies a page table entry for each resident page that is not a file's.
 * Scales the time per byte of the last fork made by this process or, if it has made none, by the process it was forked
 * from; before any fork, assumes 12.5 µs per MiB. Returns 0 if statm cannot be read. Takes a few µs, needs no GVL.
 */
uint64_t memscope_fork_predicted_ns(void);

/*
 * Whether work belongs in a child: it is predicted to take longer than the budget, and longer than a fork.
 * With a budget of 0, it always belongs there.
 */
bool memscope_fork_pays(uint64_t work_ns, uint64_t budget_ns, uint64_t fork_ns);

/* Called by memscope_forked_child_start, with the CPU time that the fork took. */
void memscope_fork_took(uint64_t ns);

struct memscope_fork_room {
    uint64_t needed_bytes;
    uint64_t free_bytes; /* UINT64_MAX: no limit is known */
};

/*
 * How much memory a child that lives for child_ns needs, and how much is free in the container and the machine. The
 * child needs page tables of its own, and each page that the process writes to meanwhile is copied: assumes 1 byte per
 * nanosecond, up to all resident bytes that are not a file's. Reads the cgroup and /proc/meminfo: 100 to 300 µs, no GVL
 * needed. Then waits, no longer than half a second, for the readings that the child would spoil
 * (kernel/own_children.h): here, since most callers hold the GVL when they fork.
 */
void memscope_fork_room_read(uint64_t child_ns, struct memscope_fork_room *room);

/* How many nanoseconds or bytes some work takes per thousand slots of Ruby's heap, as last measured. */
typedef _Atomic(uint64_t) memscope_slot_rate;

uint64_t memscope_slot_rate_predict(memscope_slot_rate *rate, uint64_t slots);

/* Ignores work on fewer than 100,000 slots, which says little about the rate. */
void memscope_slot_rate_learn(memscope_slot_rate *rate, uint64_t slots, uint64_t took);

#endif
