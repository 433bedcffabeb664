/* How glibc lays out chunks (malloc/malloc.c), for the files that read its heaps. */
#pragma once

#include <unistd.h>

#include "base/range.h"

/* Chunks begin at multiples of ALIGNMENT with a header of as many bytes: two words, of which the second is the size. */
#define WORD sizeof(uintptr_t)
#define ALIGNMENT (2 * WORD)
#define SIZE_FLAGS ((uintptr_t)7) /* PREV_INUSE, IS_MMAPPED and NON_MAIN_ARENA */
#define PREVIOUS_IN_USE ((uintptr_t)1)
#define IS_MMAPPED ((uintptr_t)2)
#define MIN_CHUNK (4 * WORD)
#define CHUNK_FIELDS (6 * WORD) /* sizeof(struct malloc_chunk), which mtrim keeps at the start of a free chunk */

static inline uintptr_t memscope_page_bytes(void) {
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* The whole pages after a free chunk's own fields. mtrim returns them, and systrim those of the main heap's top. */
static inline struct memscope_range memscope_pages_of_free_chunk(uintptr_t start, uintptr_t end) {
    uintptr_t page = memscope_page_bytes();
    uintptr_t first = (start + CHUNK_FIELDS + page - 1) & -page, last = end & -page;

    return (struct memscope_range){first, last > first ? last : first};
}
