/*
 * Arrays in mappings of their own: large ones that grow, or that go back before the work ends. Neither Ruby's memory
 * nor malloc's; any thread, no GVL, and in a forked child too. What was never written takes no memory, only address
 * space.
 *
 * They are not listed as base/scratch.h's are: a ledger read meanwhile by another thread leaves them unattributed.
 */
#ifndef MEMSCOPE_MAPPED_ARRAY_H
#define MEMSCOPE_MAPPED_ARRAY_H

#include <stddef.h>

/* Zeroed, aligned to 64 bytes; the caller's until unmapped. NULL if the kernel refuses. */
void *memscope_array_map(size_t count, size_t item_size);

/* The same for one of which little will be written, here and there: huge pages would make it much larger. */
void *memscope_array_map_sparse(size_t count, size_t item_size);

/* From now on, large arrays in this process have huge pages: for a forked child, whose memory is gone soon. */
void memscope_array_prefer_huge_pages(void);

/* Room for count items, the new ones zeroed. It may move. NULL if the kernel refuses: the array is then as it was. */
void *memscope_array_grow(void *array, size_t count, size_t item_size);

/* NULL is no array. */
void memscope_array_unmap(void *array);

#endif
