/* What a fork of this process costs: how long it stops the process, and how much memory it may take. */
#ifndef MEMSCOPE_FORK_COST_H
#define MEMSCOPE_FORK_COST_H

#include <stdint.h>

#include "base/status.h"

/*
 * The kernel copies an entry for each resident page that is not a file's. From what the last fork of this process, or
 * of the one it was forked from, took for each byte; before the first, from 12.5 ms a gigabyte. 0 if statm cannot be
 * read. A few µs, no GVL needed.
 */
uint64_t memscope_fork_predicted_ns(void);

/* To be told what CPU time a fork took, by the process that forked. */
void memscope_fork_took(uint64_t ns);

struct memscope_fork_room {
    uint64_t needed_bytes;
    uint64_t free_bytes; /* UINT64_MAX: no limit is known */
};

/*
 * Whether the process's container and machine have room for a child that lives for child_ns. It needs page tables of
 * its own; and for each page that the process writes to meanwhile, there are two: at 1 byte a nanosecond, but no more
 * than is resident. Reads the cgroup and /proc/meminfo: 100 to 300 µs, no GVL needed.
 */
void memscope_fork_room_read(uint64_t child_ns, struct memscope_fork_room *room);

/* The reader's parser, for the NUL-terminated text of /proc/meminfo. */
enum memscope_status memscope_fork_parse_meminfo(const char *text, uint64_t *available_bytes);

#endif
