/*
 * Arrays in mappings of their own, for large arrays that grow, or that are unmapped before the work ends. Uses neither
 * Ruby's memory nor malloc's; works in any thread, without the GVL, and in a forked child. What was never written takes
 * address space only.
 *
 * Unlike scratch memory (base/scratch.h), these mappings are not listed: in a ledger that another thread reads
 * meanwhile, they are unattributed.
 */
#ifndef MEMSCOPE_MAPPED_ARRAY_H
#define MEMSCOPE_MAPPED_ARRAY_H

#include <stddef.h>

/* Zeroed, aligned to 64 bytes; the caller's until unmapped. NULL if the kernel refuses. */
void *memscope_array_map(size_t count, size_t item_size);

/* The same for a sparsely written one: huge pages would make it much larger. */
void *memscope_array_map_sparse(size_t count, size_t item_size);

/* The same for one whose items are all written before they are read: in a child, they are not zeroed. */
void *memscope_array_map_unwritten(size_t count, size_t item_size);

/*
 * For a forked child, which has one thread, and whose memory is gone soon: from now on, large arrays have huge pages,
 * and the mappings of those that are unmapped are kept for unwritten ones. Mapping memory anew is dear: the kernel
 * zeroes it.
 */
void memscope_array_enter_child(void);

/* Room for count items, the new ones zeroed. It may move. NULL if the kernel refuses: the array is then as it was. */
void *memscope_array_grow(void *array, size_t count, size_t item_size);

/* Ignores NULL. */
void memscope_array_unmap(void *array);

#endif
