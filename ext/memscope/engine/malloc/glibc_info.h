/*
 * glibc's own statistics arena by arena: malloc_info's output, parsed while it is written.
 *
 * Its XML is the only public list of glibc's arenas. It locks one arena at a time, so the arenas are not one moment's.
 * Elements and attributes as in malloc/malloc.c from 2.31 to 2.43; 2.43 removed fastbins.
 */
#ifndef MEMSCOPE_GLIBC_INFO_H
#define MEMSCOPE_GLIBC_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scratch.h"
#include "base/status.h"

/* Free blocks of from to to bytes each; the unsorted ones are listed apart, and not by size. */
struct memscope_glibc_free_size {
    uint64_t from_bytes, to_bytes, bytes, blocks;
    bool unsorted;
};

struct memscope_glibc_arena {
    unsigned index;
    bool has_fastbins;
    uint64_t fast_blocks, fast_bytes; /* free, in fastbins */
    uint64_t free_blocks, free_bytes; /* free, elsewhere; the top chunk included */
    uint64_t system_bytes;            /* what it has from the kernel now */
    uint64_t system_max_bytes;        /* and had at most */
    uint64_t address_space_bytes;     /* reserved */
    uint64_t writable_bytes;          /* and made writable */
    uint64_t heaps;                   /* its mappings; 0 for the main arena, and where not reported */
    size_t first_size, size_count;    /* in the list of sizes */
};

struct memscope_glibc_arenas {
    struct memscope_glibc_arena *list; /* by index */
    size_t count;
    struct memscope_glibc_arena merged; /* glibc's own sums */
    uint64_t mmapped_blocks, mmapped_bytes;
    struct memscope_glibc_free_size *sizes;
    size_t size_count;
};

/* Memory for arenas and for sizes: both grow meanwhile, so they must differ. */
struct memscope_glibc_arenas_memory {
    struct memscope_scratch *arenas;
    struct memscope_scratch *sizes;
};

/*
 * Calls malloc_info, which walks the free lists of each arena under its lock: 37 ms with 84,000 free blocks. stdio
 * allocates a stream of a few hundred bytes with malloc before, and frees it after; nothing is written while an arena
 * is locked (glibc malloc/malloc.c __malloc_info). No GVL needed. MEMSCOPE_UNSUPPORTED without malloc_info.
 */
enum memscope_status memscope_glibc_read_arenas(const struct memscope_glibc_arenas_memory *memory,
                                                struct memscope_glibc_arenas *arenas);

/* The same from text that malloc_info wrote. MEMSCOPE_MALFORMED for any other text, or a truncated one. */
enum memscope_status memscope_glibc_parse_arenas(const char *text, size_t length,
                                                 const struct memscope_glibc_arenas_memory *memory,
                                                 struct memscope_glibc_arenas *arenas);

#endif
