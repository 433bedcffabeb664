/*
 * The content of glibc's heaps, chunk by chunk: in use, in a thread's cache, free, or the top.
 *
 * A chunk's header holds its size. PREV_INUSE, the low bit of the next chunk's size, is set if the chunk itself is in
 * use (malloc/malloc.c, "boundary tags"). The walk reads copies of resident memory, never the heap itself, and takes no
 * lock, so it races with threads that change the heap. It stops at an implausible size, and the rest of that heap is
 * unwalked.
 */
#pragma once

#include "base/own_memory.h"
#include "base/scratch.h"
#include "kernel/residency.h"
#include "kernel/sharing.h"
#include "ledger/glibc_regions.h"

/* One kind of chunk: its count, its address space, and the resident part of it. */
struct memscope_chunk_sum {
    uint64_t count;
    uint64_t bytes;
    uint64_t resident_bytes;
};

struct memscope_chunk_totals {
    struct memscope_chunk_sum in_use;
    struct memscope_chunk_sum free;
    struct memscope_chunk_sum cached; /* in a thread's tcache, in use for glibc itself */
    struct memscope_chunk_sum top;
    struct memscope_chunk_sum arena; /* heap_info and malloc_state, at the start of the arenas' heaps */
    uint64_t trimmable_bytes;        /* resident whole pages that malloc_trim(0) returns */
    uint64_t trimmable_shared_bytes; /* the part that other processes map too, 0 if walk->sharing is closed */
    uint64_t kept_bytes;             /* whole pages that malloc_trim cannot return: locked, or madvise is refused */
    uint64_t unwalked_bytes; /* address space before a heap's first chunk, or past the point where the walk stopped */
    bool incomplete; /* chunks are missing, or free ones count as in use, see stop, first_chunk and lacks_fast */
};

enum memscope_chunk_kind {
    MEMSCOPE_CHUNK_IN_USE,
    MEMSCOPE_CHUNK_CACHED,
    MEMSCOPE_CHUNK_FREE,
    MEMSCOPE_CHUNK_FAST,     /* in a fastbin: free, but not merged with its neighbours until malloc_trim */
    MEMSCOPE_CHUNK_TOP,      /* of an arena's heap, or of a piece of the main arena */
    MEMSCOPE_CHUNK_MAIN_TOP, /* of the main heap, which malloc_trim trims */
};

/* Called for each chunk of a heap in address order. */
typedef void memscope_chunk_visitor(void *context, enum memscope_chunk_kind kind, uintptr_t start, uintptr_t end);

struct memscope_chunk_walk {
    const struct memscope_own_memory *memory;
    const struct memscope_residency *residency;
    struct memscope_scratch *scratch;
    char *window; /* a copy of [window_start, window_end) */
    uintptr_t window_start, window_end;
    size_t range;    /* index of the resident range last used, since lookups mostly ascend */
    uintptr_t *fast; /* chunks in fastbins, ascending, in scratch */
    size_t fast_count, next_fast;
    bool lacks_fast; /* scratch had no room for all of them, so that all heaps are incomplete */
    struct memscope_sharing sharing;
    bool returns_nothing;            /* madvise is refused, so that only the top of the main heap can be trimmed */
    bool has_locked_memory;          /* if set, each free chunk's pages are checked for locks */
    memscope_chunk_visitor *visitor; /* NULL for none */
    void *visitor_context;
};

/*
 * Learns the random key that marks a chunk in a thread's cache (2.34 and newer) from chunks that this function itself
 * frees. Call once, when the extension is loaded and glibc is proved to serve malloc. Without a key, cached chunks
 * count as in use.
 */
void memscope_glibc_learn_cache_key(void);
bool memscope_glibc_knows_cache_key(void);

/*
 * Returns false if there is no room for the window. Leaves walk->sharing closed, and the two flags false. The caller
 * may open walk->sharing, which it must then close, and may set the flags.
 */
bool memscope_chunk_walk_open(struct memscope_chunk_walk *walk, const struct memscope_own_memory *memory,
                              const struct memscope_residency *residency, struct memscope_scratch *scratch);

/*
 * Call these before any heap is walked, in this order. begin takes scratch memory. The two add functions list each
 * arena's fast chunks, by the address of its field `top`, or by that of a heap of an arena other than the main one.
 * Without them, fast chunks count as in use. 0.3 µs per chunk.
 */
void memscope_chunk_walk_begin(struct memscope_chunk_walk *walk);
void memscope_chunk_walk_add_fast_chunks(struct memscope_chunk_walk *walk, uintptr_t top);
void memscope_chunk_walk_add_arena_fast_chunks(struct memscope_chunk_walk *walk, uintptr_t start);
void memscope_chunk_walk_sort_fast_chunks(struct memscope_chunk_walk *walk);

/*
 * The first function walks the main heap, [start, end), where end is the program break. The second walks one heap of
 * another arena, whose heap_info is at start. About 0.15 to 0.3 µs per chunk. No GVL, no allocation, no lock.
 */
void memscope_chunk_walk_main_heap(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end,
                                   struct memscope_chunk_totals *totals);
void memscope_chunk_walk_arena_heap(struct memscope_chunk_walk *walk, uintptr_t start,
                                    struct memscope_chunk_totals *totals);

/* Walks one piece of the main arena (glibc_pieces.h). */
void memscope_chunk_walk_piece(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end,
                               struct memscope_chunk_totals *totals);

/* Copies the word at address. Returns false if it is not resident. */
bool memscope_chunk_walk_word(struct memscope_chunk_walk *walk, uintptr_t address, uintptr_t *word);
