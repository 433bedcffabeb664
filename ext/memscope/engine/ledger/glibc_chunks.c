#include "ledger/glibc_chunks.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/merge_sort.h"
#include "kernel/returnable.h"
#include "ledger/glibc_layout.h"

/* The largest single copy. After a jump, copies begin with one page and grow up to this. */
#define WINDOW ((size_t)64 << 10)

/* struct malloc_state from 2.27 to 2.42: fastbinsY, then top. 2.43 has no fastbins, and top elsewhere. */
#define FASTBINS_OFFSET 16
#define FASTBIN_COUNT 10
#define TOP_OFFSET (FASTBINS_OFFSET + FASTBIN_COUNT * WORD)
#define STATE_LIMIT 4096
/* An arena's heap has at most four huge pages (glibc.malloc.hugetlb=2), of at most 1 GiB. */
#define HEAP_LIMIT ((uintptr_t)4 << 30)
#define FAST_CHUNK_LIMIT 10000000

static uintptr_t cache_key;

/* ---- the key of cached chunks --------------------------------------------------------------------------------- */

/*
 * Before 2.34, the word is an address, which differs by thread and whose top 16 bits are 0. The top 16 bits of a random
 * key are hardly ever 0.
 */
static bool is_random(uintptr_t key) {
    return key >> 48 != 0;
}

/*
 * tcache_entry's second word is the key. It is read through the kernel, since the block is already freed. The block
 * gets no key if the thread's cache is full for its size, as when malloc has just filled the cache from the arena's
 * bins, or has taken a larger chunk than requested (_int_malloc). A second block of the first one's real size then
 * comes from the cache, and leaves room for itself.
 */
static uintptr_t key_of_freed_block(const struct memscope_own_memory *memory, size_t size) {
    uintptr_t key = 0;

    for (int attempt = 0; attempt < 2 && !is_random(key); attempt++) {
        char *volatile block = malloc(size);
        uintptr_t address = (uintptr_t)block;

        if (block == NULL)
            return 0;
        size = malloc_usable_size(block);
        free(block);
        if (!memscope_own_memory_read(memory, address + WORD, &key, sizeof key))
            return 0;
    }
    return key;
}

void memscope_glibc_learn_cache_key(void) {
    struct memscope_own_memory memory;
    uintptr_t key;

    if (memscope_own_memory_open(&memory) == MEMSCOPE_OK) {
        key = key_of_freed_block(&memory, 24);
        if (is_random(key) && key_of_freed_block(&memory, 120) == key && key_of_freed_block(&memory, 504) == key)
            cache_key = key;
    }
    memscope_own_memory_close(&memory);
}

bool memscope_glibc_knows_cache_key(void) {
    return cache_key != 0;
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

bool memscope_chunk_walk_open(struct memscope_chunk_walk *walk, const struct memscope_own_memory *memory,
                              const struct memscope_residency *residency, struct memscope_scratch *scratch) {
    memset(walk, 0, sizeof *walk);
    walk->memory = memory;
    walk->residency = residency;
    walk->scratch = scratch;
    walk->window = memscope_scratch_take(scratch, WINDOW);
    return walk->window != NULL;
}

/* Moves to the first resident range that ends after address. */
static const struct memscope_range *range_at(struct memscope_chunk_walk *walk, uintptr_t address) {
    const struct memscope_range *ranges = walk->residency->ranges;
    size_t count = walk->residency->range_count;

    if (walk->range >= count || (walk->range > 0 && ranges[walk->range - 1].end > address))
        walk->range = 0;
    if (walk->range == 0)
        walk->range = memscope_range_position(ranges, count, sizeof *ranges, address);
    while (walk->range < count && ranges[walk->range].end <= address)
        walk->range++;
    return walk->range < count ? &ranges[walk->range] : NULL;
}

/* About twice the last window if the walk goes on past it, or one page after a jump, since another jump may follow. */
static size_t window_size(const struct memscope_chunk_walk *walk, uintptr_t address) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), last = walk->window_end - walk->window_start;

    if (address < walk->window_start || address >= walk->window_end + page)
        return page;
    return 2 * last + page < WINDOW ? 2 * last + page : WINDOW;
}

/*
 * Copies resident memory from address on. Pages that have become resident since residency was read are copied one at a
 * time. Pages that are not resident are never read, since reading them would map zero pages.
 */
static bool load_window(struct memscope_chunk_walk *walk, uintptr_t address) {
    const struct memscope_range *range = range_at(walk, address);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (address + window_size(walk, address)) & -page;

    walk->window_start = walk->window_end = 0;
    if (range != NULL && range->start <= address)
        end = end < range->end ? end : range->end;
    else if (memscope_is_resident_by_now(address))
        end = (address + page) & -page;
    else
        return false;
    if (!memscope_own_memory_read(walk->memory, address, walk->window, end - address))
        return false;
    walk->window_start = address;
    walk->window_end = end;
    return true;
}

bool memscope_chunk_walk_word(struct memscope_chunk_walk *walk, uintptr_t address, uintptr_t *word) {
    if ((address < walk->window_start || address + WORD > walk->window_end) &&
        (!load_window(walk, address) || address + WORD > walk->window_end))
        return false;
    memcpy(word, walk->window + (address - walk->window_start), WORD);
    return true;
}

static uint64_t resident_between(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end) {
    const struct memscope_range *range = range_at(walk, start);
    const struct memscope_range *last = walk->residency->ranges + walk->residency->range_count;
    uint64_t bytes = 0;

    for (; range != NULL && range < last && range->start < end; range++)
        bytes += (range->end < end ? range->end : end) - (range->start > start ? range->start : start);
    return bytes;
}

/* ---- fastbins: free chunks that look in use -------------------------------------------------------------------- */

static uintptr_t follow(uintptr_t field, uintptr_t value) {
    uintptr_t demangled = (field >> 12) ^ value; /* PROTECT_PTR, 2.32 */

    return demangled % ALIGNMENT == 0 ? demangled : value;
}

void memscope_chunk_walk_begin(struct memscope_chunk_walk *walk) {
    walk->fast = memscope_scratch_take(walk->scratch, 0);
    walk->fast_count = 0;
    walk->lacks_fast = false;
}

static bool add_fast(struct memscope_chunk_walk *walk, uintptr_t chunk) {
    bool added = walk->fast_count < FAST_CHUNK_LIMIT && walk->fast != NULL &&
                 memscope_scratch_add(walk->scratch, &walk->fast_count, &chunk, sizeof chunk);

    walk->lacks_fast |= !added;
    return added;
}

/* Skips the rest of a list at a chunk that cannot be read or does not have the bin's size, and at a cycle. */
void memscope_chunk_walk_add_fast_chunks(struct memscope_chunk_walk *walk, uintptr_t top) {
    uintptr_t bins[FASTBIN_COUNT];
    struct {
        uintptr_t previous_size, size, next;
    } chunk;

    if (!memscope_own_memory_read(walk->memory, top - sizeof bins, bins, sizeof bins))
        return;
    for (size_t bin = 0; bin < FASTBIN_COUNT; bin++) {
        uintptr_t address = bins[bin], passed = 0;

        for (size_t step = 0; address != 0 && address != passed; step++) {
            if (!memscope_own_memory_read(walk->memory, address, &chunk, sizeof chunk) ||
                (chunk.size & ~SIZE_FLAGS) != MIN_CHUNK + bin * ALIGNMENT || !add_fast(walk, address))
                break;
            if ((step & (step - 1)) == 0)
                passed = address;
            address = follow(address + 2 * WORD, chunk.next);
        }
    }
}

void memscope_chunk_walk_add_arena_fast_chunks(struct memscope_chunk_walk *walk, uintptr_t start) {
    struct memscope_glibc_heap_info info;

    if (memscope_own_memory_read(walk->memory, start, &info, sizeof info) && info.previous == 0 &&
        info.arena - start < STATE_LIMIT)
        memscope_chunk_walk_add_fast_chunks(walk, info.arena + TOP_OFFSET);
}

static bool in_order(const void *left, const void *right) {
    return *(const uintptr_t *)left <= *(const uintptr_t *)right;
}

void memscope_chunk_walk_sort_fast_chunks(struct memscope_chunk_walk *walk) {
    void *buffer = memscope_scratch_take(walk->scratch, walk->fast_count * sizeof *walk->fast);

    if (buffer != NULL)
        memscope_merge_sort((char *)walk->fast, walk->fast_count, sizeof *walk->fast, buffer, in_order);
    else
        walk->fast_count = 0;
    walk->lacks_fast |= buffer == NULL;
}

/* Returns true for a fast chunk. Chunks of a heap come in ascending order, the first after next_fast was set to 0. */
static bool is_fast(struct memscope_chunk_walk *walk, uintptr_t chunk) {
    while (walk->next_fast < walk->fast_count && walk->fast[walk->next_fast] < chunk)
        walk->next_fast++;
    return walk->next_fast < walk->fast_count && walk->fast[walk->next_fast] == chunk;
}

/* ---- walking -------------------------------------------------------------------------------------------------- */

static void visit(const struct memscope_chunk_walk *walk, enum memscope_chunk_kind kind, uintptr_t start,
                  uintptr_t end) {
    if (walk->visitor != NULL)
        walk->visitor(walk->visitor_context, kind, start, end);
}

static void add_chunk(struct memscope_chunk_walk *walk, struct memscope_chunk_sum *sum, uintptr_t start,
                      uintptr_t end) {
    sum->count++;
    sum->bytes += end - start;
    sum->resident_bytes += resident_between(walk, start, end);
}

/* Adds the resident part of pages that malloc_trim returns. */
static void add_trimmable(struct memscope_chunk_walk *walk, struct memscope_range pages,
                          struct memscope_chunk_totals *totals) {
    uint64_t bytes = resident_between(walk, pages.start, pages.end);
    uint64_t shared = bytes > 0 ? memscope_sharing_between(&walk->sharing, pages.start, pages.end) : 0;

    totals->trimmable_bytes += bytes;
    totals->trimmable_shared_bytes += shared < bytes ? shared : bytes; /* a page may have been mapped in between */
}

/*
 * Adds the trimmable part of a free chunk. mtrim returns that part with a single call of madvise, which fails if any of
 * the pages is locked.
 */
static void add_free(struct memscope_chunk_walk *walk, struct memscope_range chunk,
                     struct memscope_chunk_totals *totals) {
    struct memscope_range pages = memscope_pages_of_free_chunk(chunk.start, chunk.end);

    if (pages.end > pages.start &&
        (walk->returns_nothing || (walk->has_locked_memory && memscope_is_locked(pages.start, pages.end))))
        totals->kept_bytes += resident_between(walk, pages.start, pages.end);
    else
        add_trimmable(walk, pages, totals);
}

/*
 * A small block waits in the tcache of the thread that freed it, with the key right after the block's first word. A
 * thread that ends moves its cached chunks to the fastbins and does not erase the key (tcache_thread_shutdown).
 */
static enum memscope_chunk_kind kind_in_use(struct memscope_chunk_walk *walk, uintptr_t chunk) {
    uintptr_t word;

    if (is_fast(walk, chunk))
        return MEMSCOPE_CHUNK_FAST;
    return cache_key != 0 && memscope_chunk_walk_word(walk, chunk + 3 * WORD, &word) && word == cache_key
               ? MEMSCOPE_CHUNK_CACHED
               : MEMSCOPE_CHUNK_IN_USE;
}

struct heap {
    uintptr_t first;           /* its first chunk */
    uintptr_t end;             /* as it was before the walk */
    uintptr_t info;            /* the heap_info of an arena's heap, else 0 */
    bool trims_top;            /* only true for the main heap, since malloc_trim trims no other heap's top */
    struct memscope_range run; /* adjacent chunks that are free or fast, up to the current chunk of the walk */
};

/* Returns true if `count` plausible chunks follow each other from `start` on, or fewer that reach the heap's end. */
static bool is_chain(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end, int count) {
    uintptr_t chunk = start, size;

    for (int index = 0; index < count && chunk < end; index++) {
        if (!memscope_chunk_walk_word(walk, chunk + WORD, &size))
            return false;
        size &= ~SIZE_FLAGS;
        if (size < MIN_CHUNK || size % ALIGNMENT != 0 || size > end - chunk)
            return false;
        chunk += size;
    }
    return true;
}

static void stop(struct memscope_chunk_totals *totals, uint64_t rest) {
    totals->unwalked_bytes += rest;
    totals->incomplete = true;
}

/*
 * Ends the run of free chunks before `chunk`. malloc_trim first merges fast chunks with adjacent free chunks (mtrim
 * calls malloc_consolidate), so pages that no single chunk fills are trimmable.
 */
static void end_run(struct memscope_chunk_walk *walk, struct heap *heap, uintptr_t chunk,
                    struct memscope_chunk_totals *totals) {
    if (heap->run.end == chunk)
        add_free(walk, heap->run, totals);
    heap->run = (struct memscope_range){0, 0};
}

/*
 * Chunks merged into the top are trimmable in the main heap only: systrim returns them by lowering the program break,
 * even if pages are locked.
 */
static void add_top(struct memscope_chunk_walk *walk, const struct heap *heap, uintptr_t chunk,
                    struct memscope_chunk_totals *totals) {
    add_chunk(walk, &totals->top, chunk, heap->end);
    visit(walk, heap->trims_top ? MEMSCOPE_CHUNK_MAIN_TOP : MEMSCOPE_CHUNK_TOP, chunk, heap->end);
    if (heap->trims_top)
        add_trimmable(walk, memscope_pages_of_free_chunk(heap->run.end == chunk ? heap->run.start : chunk, heap->end),
                      totals);
}

/* Adds a chunk below the heap's top. */
static void add_inner(struct memscope_chunk_walk *walk, struct heap *heap, struct memscope_range chunk,
                      enum memscope_chunk_kind kind, struct memscope_chunk_totals *totals) {
    if (kind == MEMSCOPE_CHUNK_FREE || kind == MEMSCOPE_CHUNK_FAST) {
        add_chunk(walk, &totals->free, chunk.start, chunk.end);
        heap->run = (struct memscope_range){heap->run.end == chunk.start ? heap->run.start : chunk.start, chunk.end};
    } else {
        add_chunk(walk, kind == MEMSCOPE_CHUNK_CACHED ? &totals->cached : &totals->in_use, chunk.start, chunk.end);
        end_run(walk, heap, chunk.start, totals);
    }
    visit(walk, kind, chunk.start, chunk.end);
}

static uintptr_t end_by_now(const struct memscope_chunk_walk *walk, const struct heap *heap) {
    struct memscope_glibc_heap_info info;

    if (heap->trims_top)
        return (uintptr_t)sbrk(0);
    if (heap->info != 0 && memscope_own_memory_read(walk->memory, heap->info, &info, sizeof info))
        return heap->info + info.size;
    return heap->end;
}

/*
 * Ends the walk at a chunk that ends past the heap's end, or at unreadable memory. If the heap has grown or shrunk
 * during the walk, this chunk is the heap's top, or a block that was cut from the top. Adds the part of the chunk that
 * was in the heap. Returns false if the chunk is neither.
 */
static bool end_changed_heap(struct memscope_chunk_walk *walk, struct heap *heap, struct memscope_range chunk,
                             struct memscope_chunk_totals *totals) {
    uintptr_t end = end_by_now(walk, heap);

    if (chunk.end == end)
        add_top(walk, heap, chunk.start, totals);
    else if (chunk.end > heap->end && chunk.end < end)
        add_inner(walk, heap, (struct memscope_range){chunk.start, heap->end}, MEMSCOPE_CHUNK_IN_USE, totals);
    else
        return false;
    return true;
}

/* Walks from heap->first to the top chunk, which reaches heap->end. */
static void walk_heap(struct memscope_chunk_walk *walk, struct heap *heap, struct memscope_chunk_totals *totals) {
    uintptr_t chunk = heap->first, header, next_header;

    walk->next_fast = 0;
    totals->incomplete |= walk->lacks_fast;
    if (!memscope_chunk_walk_word(walk, chunk + WORD, &header)) {
        stop(totals, heap->end - chunk);
        return;
    }
    for (;; header = next_header) {
        uintptr_t size = header & ~SIZE_FLAGS, next = chunk + size;
        bool fence = size == ALIGNMENT || size == 0; /* fencepost of a heap that another heap continues (sysmalloc) */
        enum memscope_chunk_kind kind;

        if (fence && heap->end - chunk <= 2 * ALIGNMENT) {
            add_inner(walk, heap, (struct memscope_range){chunk, heap->end}, MEMSCOPE_CHUNK_IN_USE, totals);
            return;
        }
        if ((size < MIN_CHUNK && !fence) || size == 0 || size % ALIGNMENT != 0)
            break;
        if (size <= heap->end - chunk && heap->end - next < ALIGNMENT) {
            add_top(walk, heap, chunk, totals);
            return;
        }
        kind = kind_in_use(walk, chunk); /* here, because the copied window moves on */
        if (size > heap->end - chunk || !memscope_chunk_walk_word(walk, next + WORD, &next_header)) {
            if (!end_changed_heap(walk, heap, (struct memscope_range){chunk, next}, totals))
                break;
            return;
        }
        add_inner(walk, heap, (struct memscope_range){chunk, next},
                  next_header & PREVIOUS_IN_USE ? kind : MEMSCOPE_CHUNK_FREE, totals);
        chunk = next;
    }
    end_run(walk, heap, chunk, totals);
    stop(totals, heap->end - chunk);
}

/* ---- heaps ---------------------------------------------------------------------------------------------------- */

/*
 * If huge pages are requested (GLIBC_TUNABLES hugetlb), the [heap] mapping may begin with memory outside all chunks.
 * The heap begins at the first address from which chunks follow each other, and the memory before it is unwalked. Sets
 * *skipped if pages before the first chunk were not resident, and so may hold chunks.
 */
static uintptr_t first_chunk(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end, bool *skipped) {
    const struct memscope_range *range;

    for (uintptr_t chunk = start; chunk + MIN_CHUNK <= end; chunk += ALIGNMENT) {
        if (is_chain(walk, chunk, end, 16))
            return chunk;
        range = range_at(walk, chunk);
        if (range == NULL)
            return 0;
        if (range->start > chunk) {
            chunk = range->start - ALIGNMENT;
            *skipped = true;
        }
    }
    return 0;
}

void memscope_chunk_walk_main_heap(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end,
                                   struct memscope_chunk_totals *totals) {
    bool skipped = false;
    struct heap heap = {.first = first_chunk(walk, start, end, &skipped), .end = end, .trims_top = true};

    if (heap.first == 0) {
        stop(totals, end - start);
        return;
    }
    totals->incomplete |= skipped;
    totals->unwalked_bytes += heap.first - start;
    walk_heap(walk, &heap, totals);
}

void memscope_chunk_walk_piece(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end,
                               struct memscope_chunk_totals *totals) {
    struct heap piece = {.first = start, .end = end};

    walk_heap(walk, &piece, totals);
}

/* In an arena's first heap, malloc_state is between heap_info and the first chunk. Its size differs by version. */
static uintptr_t first_chunk_of_arena_heap(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t from,
                                           uintptr_t end) {
    uintptr_t chunk = (from + ALIGNMENT - 1) & -(uintptr_t)ALIGNMENT, size;

    for (; chunk < start + STATE_LIMIT && chunk + MIN_CHUNK <= end; chunk += ALIGNMENT)
        if (memscope_chunk_walk_word(walk, chunk + WORD, &size) &&
            (size & (PREVIOUS_IN_USE | IS_MMAPPED)) == PREVIOUS_IN_USE && is_chain(walk, chunk, end, 8))
            return chunk;
    return 0;
}

void memscope_chunk_walk_arena_heap(struct memscope_chunk_walk *walk, uintptr_t start,
                                    struct memscope_chunk_totals *totals) {
    struct memscope_glibc_heap_info info = {0};
    struct heap heap = {.info = start};
    bool read = memscope_own_memory_read(walk->memory, start, &info, sizeof info);
    uintptr_t from = info.previous == 0 ? info.arena + TOP_OFFSET : start + sizeof info;

    /* The heap may have been unmapped since it was found, and other memory mapped in its place. */
    if (!read || from - start >= STATE_LIMIT || info.size <= from - start || info.size > HEAP_LIMIT) {
        totals->incomplete = true;
        return;
    }
    heap.end = start + info.size;
    heap.first = first_chunk_of_arena_heap(walk, start, from, heap.end);
    if (heap.first == 0) {
        stop(totals, info.size);
        return;
    }
    add_chunk(walk, &totals->arena, start, heap.first);
    walk_heap(walk, &heap, totals);
}
