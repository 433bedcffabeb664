/*
 * Scratch memory of one reading: its own mapping, so that measuring touches neither Ruby's heap nor malloc's.
 *
 * A scratch belongs to the thread that opened it. Its address space is reserved by open, committed as it is taken, and
 * unmapped by close. It is not inherited by a forked child (MADV_DONTFORK), and every open scratch of the process is
 * listed, so that a ledger can attribute the scratch of another thread's ledger too. Needs no GVL. Async-signal-safe,
 * except that mmap may change errno.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct memscope_scratch {
    char *base;
    size_t reserved;
    size_t committed; /* bytes made writable so far */
    size_t used;
    int slot; /* in the list of open scratches, -1 when the list is full */
};

/* Returns MEMSCOPE_NO_MEMORY and a closed scratch if the kernel refuses even a small reservation. */
enum memscope_status memscope_scratch_open(struct memscope_scratch *scratch);

/* Returns a 16-aligned block, zeroed on first use, or NULL when the reservation is exhausted or the kernel refuses. */
void *memscope_scratch_take(struct memscope_scratch *scratch, size_t size);

/* Extends the last block by size bytes, in place, and returns the added part, or NULL. Adds no alignment. */
void *memscope_scratch_extend(struct memscope_scratch *scratch, size_t size);

/* Adds a copy of the item to a list of `*count` items that is the last block. Returns false if there is no room. */
bool memscope_scratch_add(struct memscope_scratch *scratch, size_t *count, const void *item, size_t size);

/*
 * Adds [start, end) to an ascending list of `*count` ranges that is the last block: joined to the last range if
 * adjacent to it. Returns false if there is no room.
 */
bool memscope_scratch_add_range(struct memscope_scratch *scratch, size_t *count, uintptr_t start, uintptr_t end);

/* Makes the next `size` bytes resident without taking them, so that filling them later changes no RSS. */
void memscope_scratch_pretouch(struct memscope_scratch *scratch, size_t size);

/* Sets whether children forked from now on inherit this scratch. By default, they do not. */
void memscope_scratch_inherit(struct memscope_scratch *scratch, int inherited);

/* Idempotent. A zeroed scratch is closed. The second form closes several. */
void memscope_scratch_close(struct memscope_scratch *scratch);
void memscope_scratch_close_each(struct memscope_scratch *const *scratches, size_t count);
#define memscope_scratches_close(...)                                                                                  \
    memscope_scratch_close_each((struct memscope_scratch *const[]){__VA_ARGS__},                                       \
                                sizeof((struct memscope_scratch *const[]){__VA_ARGS__}) / sizeof(void *))

/*
 * A mapping, of whole pages, that memscope keeps for the rest of the process: zeroed, resident only where used,
 * inherited by forked children, and listed among the scratches of each process. Returns NULL when the kernel refuses.
 */
void *memscope_lasting_map(size_t needed);

/* Fills such a mapping with zeros, and gives its memory back to the kernel. */
void memscope_lasting_empty(void *start, size_t size);

/*
 * Resident bytes of the pages in which a range of such a mapping, or of static memory, lies. Counts whole pages, by
 * mincore (microseconds per megabyte). If mincore fails, all of these pages are treated as resident.
 */
size_t memscope_lasting_resident_bytes(const void *start, size_t bytes);

/* Calls visit for each open scratch of this process, in any thread, and for each lasting mapping. */
void memscope_scratch_each(void (*visit)(uintptr_t start, uintptr_t end, void *context), void *context);
