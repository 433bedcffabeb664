/*
 * Arrays in mappings of their own, for large arrays that grow, or that are unmapped before the work ends. Uses neither
 * Ruby's memory nor malloc's. Works in any thread, without the GVL, and in a forked child. Pages that were never
 * written take only address space.
 *
 * Unlike scratch memory (base/scratch.h), these mappings are not listed, so they are unattributed in another thread's
 * ledger.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Zeroed, aligned to 64 bytes, and the caller's until unmapped. NULL if the kernel refuses. */
void *memscope_array_map(size_t count, size_t item_size);

/* The same for a sparsely written array, without huge pages, which would make much more of it resident. */
void *memscope_array_map_sparse(size_t count, size_t item_size);

/* The same for an array whose items are all written before they are read: it may get a kept mapping, as it was left. */
void *memscope_array_map_unwritten(size_t count, size_t item_size);

/*
 * Mappings of arrays that memscope_array_unmap has kept for memscope_array_map_unwritten. New mappings are expensive:
 * the kernel zeroes them, page by page. For one thread at a time. A zeroed struct is empty.
 */
#define MEMSCOPE_KEPT_MAPPINGS 8 /* maximum: there are hardly ever more at the same time */
struct memscope_kept_mappings {
    void *arrays[MEMSCOPE_KEPT_MAPPINGS]; /* NULL if none */
};

/* From now on this thread keeps large mappings here, but none of sparse arrays. NULL: none at all. Not for children. */
void memscope_array_keep_in(struct memscope_kept_mappings *mappings);

/* Idempotent. This thread then keeps no mappings. */
void memscope_kept_mappings_close(struct memscope_kept_mappings *mappings);

/*
 * For a forked child, which has one thread and ends soon: from now on, it keeps mappings, and large arrays that are not
 * sparse get huge pages.
 */
void memscope_array_enter_child(void);

/* Ignores NULL. The second form unmaps several. */
void memscope_array_unmap(void *array);
void memscope_array_unmap_each(void *const *arrays, size_t count);
#define memscope_arrays_unmap(...)                                                                                     \
    memscope_array_unmap_each((void *const[]){__VA_ARGS__}, sizeof((void *const[]){__VA_ARGS__}) / sizeof(void *))

/*
 * Makes room for count items in an array that is filled step by step. The array is a variable or a member, of any type
 * of pointer: NULL, or from this file. It may move. If it has to grow, its mapping at least doubles. New items are
 * zeroed, except in an array from memscope_array_map_unwritten. Returns false and leaves the array unchanged if the
 * kernel refuses.
 */
#define MEMSCOPE_ARRAY_RESERVE(array, count) memscope_array_reserve((void *)&(array), (count), sizeof *(array))
bool memscope_array_reserve(void *place_of_array, size_t count, size_t item_size);
