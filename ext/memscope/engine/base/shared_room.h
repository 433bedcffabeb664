/*
 * Memory that a process shares with the children that it forks from then on, at the same address: for a child's answer
 * that is too large for a pipe. Any thread, no GVL.
 */
#pragma once

#include <stddef.h>

#include "base/status.h"

/* A child's `used` is its own: it goes on from where the parent was. */
struct memscope_shared_room {
    char *base;
    size_t size, used;
};

/* Reserves address space, and takes memory as it is written. Returns NO_MEMORY and a closed room on failure. */
enum memscope_status memscope_shared_room_open(struct memscope_shared_room *room);

/* Zeroed, aligned to 16 bytes. NULL if no room is left. */
void *memscope_shared_room_take(struct memscope_shared_room *room, size_t count, size_t item_size);

/* Idempotent. A zeroed room is closed. */
void memscope_shared_room_close(struct memscope_shared_room *room);
