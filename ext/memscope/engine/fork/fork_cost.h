/*
 * The cost of a fork of this process: the time for which it stops the process, and the memory that the child may take.
 * Also the cost of the work that the child, or else the process itself, does.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Predicts the CPU time of a fork: the kernel copies a page table entry for each resident page that is not a file's.
 * Scales the time per byte of the last fork made by this process or, if it has made none, by the process it was forked
 * from. Before any fork, assumes 12.5 µs per MiB. Returns 0 if statm cannot be read. Takes a few µs, and needs no GVL.
 */
uint64_t memscope_fork_predicted_ns(void);

/*
 * Returns true if work belongs in a child: always with a budget of 0, else if it is predicted to take longer than the
 * budget, and longer than a fork.
 */
bool memscope_fork_pays(uint64_t work_ns, uint64_t budget_ns, uint64_t fork_ns);

/* Called by memscope_forked_child_start, with the CPU time that the fork took. */
void memscope_fork_took(uint64_t ns);

struct memscope_fork_room {
    uint64_t needed_bytes;
    uint64_t free_bytes; /* UINT64_MAX if no limit is known */
};

/*
 * Reads the memory that a child that lives for child_ns needs, and the free memory of the container and the machine.
 * The child needs page tables of its own, and each page to which the process writes during its life is copied: assumes
 * 1 byte per nanosecond, up to all resident bytes that are not a file's. Reads the cgroup and /proc/meminfo: 100 to
 * 300 µs, no GVL needed. Then waits, no longer than half a second, for the readings that the child would spoil
 * (kernel/own_children.h). It waits here, since most callers hold the GVL when they fork.
 */
void memscope_fork_room_read(uint64_t child_ns, struct memscope_fork_room *room);

/* Nanoseconds or bytes of some work per thousand slots of Ruby's heap, as last measured. */
typedef _Atomic(uint64_t) memscope_slot_rate;

uint64_t memscope_slot_rate_predict(memscope_slot_rate *rate, uint64_t slots);

/* Ignores work on fewer than 100,000 slots, from which the rate cannot be learned. */
void memscope_slot_rate_learn(memscope_slot_rate *rate, uint64_t slots, uint64_t took);
