/*
 * glibc's own statistics arena by arena: malloc_info's output, parsed while it is written.
 *
 * That XML is the only public list of glibc's arenas. malloc_info locks one arena at a time, so the arenas' numbers are
 * not from one moment. Elements and attributes are those of malloc/malloc.c from 2.31 to 2.43, which removed fastbins.
 */
#pragma once

#include "record_structs.h"

#include "base/scratch.h"
#include "base/status.h"

/* Free blocks of from_bytes to to_bytes each. Those of the unsorted bin are listed separately, and not by size. */
struct memscope_glibc_free_size {
    uint64_t from_bytes, to_bytes, bytes, blocks;
    bool unsorted;
};

/* The fields of jemalloc are unknown, and so is resident_bytes until ledger/glibc_resident.h sets it. */
struct memscope_glibc_arena {
    MEMSCOPE_EMBED(arena);
    size_t first_size, size_count; /* its part of memscope_glibc_arenas.sizes */
};

struct memscope_glibc_arenas {
    struct memscope_glibc_arena *list; /* by index */
    size_t count;
    struct memscope_glibc_arena merged; /* glibc's own sums */
    uint64_t mmapped_blocks, mmapped_bytes;
    struct memscope_glibc_free_size *sizes;
    size_t size_count;
};

/* Memory for the arenas and for their sizes. Both lists grow during a read, so the two must differ. */
struct memscope_glibc_arenas_memory {
    struct memscope_scratch *arenas;
    struct memscope_scratch *sizes;
};

/*
 * Calls malloc_info, which walks the free lists of each arena under that arena's lock: 37 ms with 84,000 free blocks.
 * stdio allocates a stream of a few hundred bytes with malloc first, and frees it at the end. Nothing is written while
 * an arena is locked (glibc malloc/malloc.c __malloc_info). No GVL needed. Returns MEMSCOPE_UNSUPPORTED without
 * malloc_info.
 */
enum memscope_status memscope_glibc_read_arenas(const struct memscope_glibc_arenas_memory *memory,
                                                struct memscope_glibc_arenas *arenas);

/* Parses text that malloc_info wrote. Returns MEMSCOPE_MALFORMED for any other text, or a truncated one. */
enum memscope_status memscope_glibc_parse_arenas(const char *text, size_t length,
                                                 const struct memscope_glibc_arenas_memory *memory,
                                                 struct memscope_glibc_arenas *arenas);
