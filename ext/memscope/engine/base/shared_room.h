/*
 * Memory that a process shares with the children that it forks from then on, at the same address: a child writes there
 * what is too much for a pipe. Any thread; no GVL.
 */
#ifndef MEMSCOPE_SHARED_ROOM_H
#define MEMSCOPE_SHARED_ROOM_H

#include <stddef.h>

#include "base/status.h"

/* A child's `used` is its own: it goes on from where the parent was. */
struct memscope_shared_room {
    char *base;
    size_t size, used;
};

/* Reserves address space; memory is taken as it is written. NO_MEMORY: the room is then closed. */
enum memscope_status memscope_shared_room_open(struct memscope_shared_room *room);

/* Zeroed, aligned to 16 bytes. NULL if no room is left. */
void *memscope_shared_room_take(struct memscope_shared_room *room, size_t count, size_t item_size);

/* Idempotent; a zeroed room counts as closed. */
void memscope_shared_room_close(struct memscope_shared_room *room);

#endif
