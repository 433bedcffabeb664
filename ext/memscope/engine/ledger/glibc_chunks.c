#include "ledger/glibc_chunks.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel/returnable.h"

/* The largest copy made at once. After a jump, copies begin with one page and grow up to this. */
#define WINDOW ((size_t)64 << 10)

/* malloc/malloc.c: MALLOC_ALIGNMENT 16, size bits PREV_INUSE 1, IS_MMAPPED 2, NON_MAIN_ARENA 4 */
#define WORD sizeof(uintptr_t)
#define ALIGNMENT (2 * WORD)
#define SIZE_FLAGS ((uintptr_t)7)
#define PREVIOUS_IN_USE ((uintptr_t)1)
#define IS_MMAPPED ((uintptr_t)2)
#define SMALLEST_CHUNK (4 * WORD)
#define CHUNK_FIELDS (6 * WORD) /* sizeof(struct malloc_chunk): what mtrim keeps at the start of a free chunk */

/* struct malloc_state from 2.27 to 2.42: fastbinsY, then top; 2.43 has no fastbins, and top elsewhere */
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
 * bins, or has taken a larger chunk than was asked for (_int_malloc). A second block of the size that the first one
 * really has then comes from the cache, and leaves room for itself.
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
                              const struct memscope_residency *residency, const struct memscope_images *images,
                              struct memscope_scratch *scratch) {
    memset(walk, 0, sizeof *walk);
    walk->memory = memory;
    walk->images = images;
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

/* About twice the last window if the walk goes on past it; one page after a jump, since another jump may follow. */
static size_t window_size(const struct memscope_chunk_walk *walk, uintptr_t address) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), last = walk->window_end - walk->window_start;

    if (address < walk->window_start || address >= walk->window_end + page)
        return page;
    return 2 * last + page < WINDOW ? 2 * last + page : WINDOW;
}

/*
 * Copies resident memory from address on. Pages that have become resident since residency was read are copied one at a
 * time. Pages that are not resident are never read: reading them would map zero pages.
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

/* What malloc_trim returns, the part of it that other processes also map, and what the kernel refuses to take back. */
struct trimmable {
    uint64_t bytes, shared_bytes, kept_bytes;
};

/* The whole pages after a free chunk's own fields. */
static struct memscope_range whole_pages(uintptr_t start, uintptr_t end) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (start + CHUNK_FIELDS + page - 1) & -page, last = end & -page;

    return (struct memscope_range){first, last > first ? last : first};
}

static struct trimmable measure(struct memscope_chunk_walk *walk, struct memscope_range pages) {
    struct trimmable amount = {.bytes = resident_between(walk, pages.start, pages.end)};

    if (amount.bytes > 0)
        amount.shared_bytes = memscope_sharing_between(&walk->sharing, pages.start, pages.end);
    if (amount.shared_bytes > amount.bytes) /* a page that was mapped after residency was read */
        amount.shared_bytes = amount.bytes;
    return amount;
}

/*
 * The trimmable part of a free chunk. mtrim returns that part with a single call of madvise, which fails if any of the
 * pages is locked.
 */
static struct trimmable trimmable(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end) {
    struct memscope_range pages = whole_pages(start, end);

    if (pages.end > pages.start &&
        (walk->returns_nothing || (walk->has_locked_memory && memscope_is_locked(pages.start, pages.end))))
        return (struct trimmable){.kept_bytes = resident_between(walk, pages.start, pages.end)};
    return measure(walk, pages);
}

static void add_trimmable(struct memscope_chunk_totals *totals, struct trimmable amount) {
    totals->trimmable_bytes += amount.bytes;
    totals->trimmable_shared_bytes += amount.shared_bytes;
    totals->kept_bytes += amount.kept_bytes;
}

/* Subtracts nothing if amount exceeds totals: the heap has changed since it was walked. */
static void subtract_trimmable(struct memscope_chunk_totals *totals, struct trimmable amount) {
    if (totals->trimmable_bytes < amount.bytes || totals->trimmable_shared_bytes < amount.shared_bytes ||
        totals->kept_bytes < amount.kept_bytes)
        return;
    totals->trimmable_bytes -= amount.bytes;
    totals->trimmable_shared_bytes -= amount.shared_bytes;
    totals->kept_bytes -= amount.kept_bytes;
}

/*
 * The trimmable part of the main heap's top. systrim returns it by lowering the program break, even if pages are
 * locked.
 */
static struct trimmable trimmable_top(struct memscope_chunk_walk *walk, uintptr_t top, uintptr_t end) {
    return measure(walk, whole_pages(top, end));
}

/* A small block waits in the tcache of the thread that freed it, with the key right after the block's first word. */
static bool is_cached(struct memscope_chunk_walk *walk, uintptr_t chunk) {
    uintptr_t word;

    return cache_key != 0 && memscope_chunk_walk_word(walk, chunk + 3 * WORD, &word) && word == cache_key;
}

struct heap {
    uintptr_t first; /* its first chunk */
    uintptr_t end;   /* as it was before the walk */
    uintptr_t info;  /* the heap_info of an arena's heap; else 0 */
    bool trims_top;  /* only true for the main heap: malloc_trim trims no other heap's top */
};

/* Whether `count` plausible chunks follow each other from `start` on, or fewer that reach the heap's end. */
static bool is_chain(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end, int count) {
    uintptr_t chunk = start, size;

    for (int index = 0; index < count && chunk < end; index++) {
        if (!memscope_chunk_walk_word(walk, chunk + WORD, &size))
            return false;
        size &= ~SIZE_FLAGS;
        if (size < SMALLEST_CHUNK || size % ALIGNMENT != 0 || size > end - chunk)
            return false;
        chunk += size;
    }
    return true;
}

static void stop(struct memscope_chunk_totals *totals, uint64_t rest) {
    totals->unwalked_bytes += rest;
    totals->incomplete = true;
}

static void add_top(struct memscope_chunk_walk *walk, const struct heap *heap, uintptr_t chunk,
                    struct memscope_chunk_totals *totals) {
    add_chunk(walk, &totals->top, chunk, heap->end);
    visit(walk, heap->trims_top ? MEMSCOPE_CHUNK_MAIN_TOP : MEMSCOPE_CHUNK_TOP, chunk, heap->end);
    if (heap->trims_top)
        add_trimmable(totals, trimmable_top(walk, chunk, heap->end));
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
 * Ends the walk at a chunk that ends past the heap's end, or where nothing can be read: if the heap has grown or shrunk
 * meanwhile, this chunk is the heap's top, or a block that was cut from the top. Adds the part of the chunk that was in
 * the heap. Returns false if the chunk is neither; sets *top to the top chunk, or to 0.
 */
static bool end_changed_heap(struct memscope_chunk_walk *walk, const struct heap *heap, struct memscope_range chunk,
                             struct memscope_chunk_totals *totals, uintptr_t *top) {
    uintptr_t end = end_by_now(walk, heap);

    *top = chunk.end == end ? chunk.start : 0;
    if (chunk.end == end) {
        add_top(walk, heap, chunk.start, totals);
    } else if (chunk.end > heap->end && chunk.end < end) {
        add_chunk(walk, &totals->in_use, chunk.start, heap->end);
        visit(walk, MEMSCOPE_CHUNK_IN_USE, chunk.start, heap->end);
    } else {
        return false;
    }
    return true;
}

/* Walks from heap->first to the top chunk, which reaches heap->end; returns the top, or 0 if the walk stopped early. */
static uintptr_t walk_heap(struct memscope_chunk_walk *walk, const struct heap *heap,
                           struct memscope_chunk_totals *totals) {
    uintptr_t chunk = heap->first, header, next_header, top;

    if (!memscope_chunk_walk_word(walk, chunk + WORD, &header)) {
        stop(totals, heap->end - chunk);
        return 0;
    }
    for (;; header = next_header) {
        uintptr_t size = header & ~SIZE_FLAGS, next = chunk + size;
        bool fence = size == ALIGNMENT || size == 0; /* fencepost of a heap that another heap continues (sysmalloc) */
        bool cached;

        if (fence && heap->end - chunk <= 2 * ALIGNMENT) {
            add_chunk(walk, &totals->in_use, chunk, heap->end);
            visit(walk, MEMSCOPE_CHUNK_IN_USE, chunk, heap->end);
            return 0;
        }
        if ((size < SMALLEST_CHUNK && !fence) || size == 0 || size % ALIGNMENT != 0)
            break;
        if (size <= heap->end - chunk && heap->end - next < ALIGNMENT) {
            add_top(walk, heap, chunk, totals);
            return chunk;
        }
        cached = is_cached(walk, chunk);
        if (size > heap->end - chunk || !memscope_chunk_walk_word(walk, next + WORD, &next_header)) {
            if (!end_changed_heap(walk, heap, (struct memscope_range){chunk, next}, totals, &top))
                break;
            return top;
        }
        if (!(next_header & PREVIOUS_IN_USE)) {
            add_chunk(walk, &totals->free, chunk, next);
            add_trimmable(totals, trimmable(walk, chunk, next));
            visit(walk, MEMSCOPE_CHUNK_FREE, chunk, next);
        } else {
            add_chunk(walk, cached ? &totals->cached : &totals->in_use, chunk, next);
            visit(walk, cached ? MEMSCOPE_CHUNK_CACHED : MEMSCOPE_CHUNK_IN_USE, chunk, next);
        }
        chunk = next;
    }
    stop(totals, heap->end - chunk);
    return 0;
}

/* ---- fastbins: free chunks that look in use -------------------------------------------------------------------- */

static uintptr_t follow(uintptr_t field, uintptr_t value) {
    uintptr_t demangled = (field >> 12) ^ value; /* PROTECT_PTR, 2.32 */

    return demangled % ALIGNMENT == 0 ? demangled : value;
}

/* Addresses of fast chunks, at the end of the walk's scratch memory. */
struct fast_chunks {
    uintptr_t *list;
    size_t count;
};

static bool remember(struct memscope_scratch *scratch, struct fast_chunks *fast, uintptr_t address) {
    uintptr_t *added =
        fast->list ? memscope_scratch_extend(scratch, sizeof *added) : memscope_scratch_take(scratch, sizeof *added);

    if (added == NULL)
        return false;
    if (fast->list == NULL)
        fast->list = added;
    *added = address;
    fast->count++;
    return true;
}

/*
 * Moves the chunks in the arena's fastbins from in_use to free, or from cached if they still have the key: a thread
 * that ends moves its cached chunks to the fastbins and does not erase the key (tcache_thread_shutdown). Gives up on a
 * bin's list at the first chunk that cannot be read or does not have the bin's size.
 */
static void move_fast_chunks(struct memscope_chunk_walk *walk, uintptr_t state, struct memscope_chunk_totals *totals,
                             struct fast_chunks *fast) {
    uintptr_t bins[FASTBIN_COUNT];
    struct {
        uintptr_t previous_size, size, next, key;
    } chunk;
    uint64_t walked = totals->in_use.count + totals->cached.count;
    uint64_t left = walked < FAST_CHUNK_LIMIT ? walked : FAST_CHUNK_LIMIT;

    if (!memscope_own_memory_read(walk->memory, state + FASTBINS_OFFSET, bins, sizeof bins))
        return;
    for (size_t bin = 0; bin < FASTBIN_COUNT; bin++) {
        for (uintptr_t address = bins[bin]; address != 0 && left > 0; left--) {
            struct memscope_chunk_sum *counted;

            if (!memscope_own_memory_read(walk->memory, address, &chunk, sizeof chunk) ||
                (chunk.size & ~SIZE_FLAGS) != SMALLEST_CHUNK + bin * ALIGNMENT)
                break;
            counted = cache_key != 0 && chunk.key == cache_key ? &totals->cached : &totals->in_use;
            /* A list that changes meanwhile can have chunks that the walk did not count, or lead in a circle. */
            if (counted->count == 0 || counted->bytes < (chunk.size & ~SIZE_FLAGS) ||
                counted->resident_bytes < (chunk.size & ~SIZE_FLAGS) || !remember(walk->scratch, fast, address))
                break;
            visit(walk, MEMSCOPE_CHUNK_FAST, address, address + (chunk.size & ~SIZE_FLAGS));
            counted->count--;
            counted->bytes -= chunk.size & ~SIZE_FLAGS;
            counted->resident_bytes -= chunk.size & ~SIZE_FLAGS;
            totals->free.count++;
            totals->free.bytes += chunk.size & ~SIZE_FLAGS;
            totals->free.resident_bytes += chunk.size & ~SIZE_FLAGS;
            address = follow(address + 2 * WORD, chunk.next);
        }
    }
}

/* Shell's sort: in place, and without malloc, which glibc's qsort may call. */
static void sort(const struct fast_chunks *fast) {
    for (size_t gap = fast->count / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (size_t index = gap; index < fast->count; index++) {
            uintptr_t address = fast->list[index];
            size_t place = index;

            for (; place >= gap && fast->list[place - gap] > address; place -= gap)
                fast->list[place] = fast->list[place - gap];
            fast->list[place] = address;
        }
}

/* Adjacent free chunks, which malloc_consolidate merges into one. */
struct run {
    uintptr_t start, end;
    struct trimmable counted; /* what the walk counted for its chunks one by one */
};

/* A free chunk also stores its size right after itself. */
static bool is_free_chunk(struct memscope_chunk_walk *walk, uintptr_t chunk, uintptr_t *size) {
    uintptr_t header, next_header, footer;

    if (!memscope_chunk_walk_word(walk, chunk + WORD, &header))
        return false;
    *size = header & ~SIZE_FLAGS;
    return *size >= SMALLEST_CHUNK && memscope_chunk_walk_word(walk, chunk + *size, &footer) && footer == *size &&
           memscope_chunk_walk_word(walk, chunk + *size + WORD, &next_header) && !(next_header & PREVIOUS_IN_USE);
}

static void add_to_run(struct run *run, uintptr_t start, uintptr_t end, struct trimmable counted) {
    run->counted.bytes += counted.bytes;
    run->counted.shared_bytes += counted.shared_bytes;
    run->counted.kept_bytes += counted.kept_bytes;
    if (start < run->start)
        run->start = start;
    if (end > run->end)
        run->end = end;
}

/*
 * The size of a fast chunk; 0 if the heap has changed since the chunk was listed, or the chunk's page is not resident.
 */
static uintptr_t fast_size(struct memscope_chunk_walk *walk, uintptr_t chunk) {
    uintptr_t header;

    if (!memscope_chunk_walk_word(walk, chunk + WORD, &header) || (header & ~SIZE_FLAGS) < SMALLEST_CHUNK ||
        (header & ~SIZE_FLAGS) >= SMALLEST_CHUNK + FASTBIN_COUNT * ALIGNMENT)
        return 0;
    return header & ~SIZE_FLAGS;
}

/*
 * The run that begins with the fast chunk at *index, or with a free chunk right before it. Moves *index to the last
 * fast chunk of the run. If even the first fast chunk is not plausible any more, *index stays, and the run holds no
 * fast chunk.
 */
static struct run run_at(struct memscope_chunk_walk *walk, const struct fast_chunks *fast, size_t *index,
                         uintptr_t top) {
    struct run run = {.start = fast->list[*index], .end = fast->list[*index]};
    uintptr_t header, size;
    size_t first = *index;

    if (memscope_chunk_walk_word(walk, run.start + WORD, &header) && !(header & PREVIOUS_IN_USE) &&
        memscope_chunk_walk_word(walk, run.start, &size) && size < run.start &&
        is_free_chunk(walk, run.start - size, &header) && header == size)
        add_to_run(&run, run.start - size, run.start, trimmable(walk, run.start - size, run.start));
    while (run.end != top) {
        size = *index < fast->count && fast->list[*index] == run.end ? fast_size(walk, run.end) : 0;
        if (size != 0) {
            run.end += size;
            ++*index;
        } else if (is_free_chunk(walk, run.end, &size)) {
            add_to_run(&run, run.end, run.end + size, trimmable(walk, run.end, run.end + size));
        } else {
            break;
        }
    }
    if (*index > first)
        --*index;
    return run;
}

/*
 * malloc_trim first merges the fast chunks with adjacent free chunks (mtrim calls malloc_consolidate): pages that no
 * single chunk fills become trimmable. Pages that are merged into the top do not, except in the main heap.
 */
static void join_fast_chunks(struct memscope_chunk_walk *walk, const struct heap *heap, uintptr_t top,
                             const struct fast_chunks *fast, struct memscope_chunk_totals *totals) {
    sort(fast);
    for (size_t index = 0; index < fast->count; index++) {
        struct run run = run_at(walk, fast, &index, top);
        bool joins_top = run.end == top && heap->trims_top;

        if (joins_top)
            add_to_run(&run, top, heap->end, trimmable_top(walk, top, heap->end));
        subtract_trimmable(totals, run.counted);
        if (joins_top)
            add_trimmable(totals, trimmable_top(walk, run.start, run.end));
        else if (run.end != top)
            add_trimmable(totals, trimmable(walk, run.start, run.end));
    }
}

static void count_fast_chunks(struct memscope_chunk_walk *walk, const struct heap *heap, uintptr_t top, uintptr_t state,
                              struct memscope_chunk_totals *totals) {
    size_t used = walk->scratch->used;
    struct fast_chunks fast = {0};

    move_fast_chunks(walk, state, totals, &fast);
    join_fast_chunks(walk, heap, top, &fast, totals);
    walk->scratch->used = used;
}

/* Finds main_arena in the C library's data by its top: no other word there points to the main heap's top chunk. */
static uintptr_t find_main_arena(const struct memscope_own_memory *memory, const struct memscope_images *images,
                                 uintptr_t top) {
    uintptr_t words[512], end = images->c_library_data_end;

    for (uintptr_t at = images->c_library_data_start; at + WORD <= end; at += sizeof words) {
        size_t size = end - at < sizeof words ? (end - at) & -WORD : sizeof words;

        if (!memscope_own_memory_read(memory, at, words, size))
            continue;
        for (size_t word = 0; word < size / WORD; word++)
            if (words[word] == top)
                return at + word * WORD - TOP_OFFSET;
    }
    return 0;
}

/* ---- heaps ---------------------------------------------------------------------------------------------------- */

/*
 * If huge pages are requested (GLIBC_TUNABLES hugetlb), the [heap] mapping may begin with memory that is in no chunk.
 * The heap begins at the first address from which chunks follow each other; what lies before it is unwalked. *skipped
 * says whether pages before the first chunk were not resident, and so may hold chunks.
 */
static uintptr_t first_chunk(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end, bool *skipped) {
    const struct memscope_range *range;

    for (uintptr_t chunk = start; chunk + SMALLEST_CHUNK <= end; chunk += ALIGNMENT) {
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
    uintptr_t top, state;
    bool skipped = false;
    struct heap heap = {.first = first_chunk(walk, start, end, &skipped), .end = end, .trims_top = true};

    if (heap.first == 0) {
        stop(totals, end - start);
        return;
    }
    totals->incomplete |= skipped;
    totals->unwalked_bytes += heap.first - start;
    top = walk_heap(walk, &heap, totals);
    state = top == 0 ? 0 : find_main_arena(walk->memory, walk->images, top);
    if (state != 0)
        count_fast_chunks(walk, &heap, top, state, totals);
}

uintptr_t memscope_chunk_walk_piece(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t end,
                                    struct memscope_chunk_totals *totals) {
    struct heap piece = {.first = start, .end = end};

    return walk_heap(walk, &piece, totals);
}

void memscope_chunk_walk_piece_fast_chunks(struct memscope_chunk_walk *walk, uintptr_t top,
                                           struct memscope_chunk_totals *totals) {
    uintptr_t state = find_main_arena(walk->memory, walk->images, top);
    struct heap piece = {0};

    if (state != 0)
        count_fast_chunks(walk, &piece, top, state, totals);
}

/* In an arena's first heap, malloc_state lies between heap_info and the first chunk; its size differs by version. */
static uintptr_t first_chunk_of_arena_heap(struct memscope_chunk_walk *walk, uintptr_t start, uintptr_t from,
                                           uintptr_t end) {
    uintptr_t chunk = (from + ALIGNMENT - 1) & -(uintptr_t)ALIGNMENT, size;

    for (; chunk < start + STATE_LIMIT && chunk + SMALLEST_CHUNK <= end; chunk += ALIGNMENT)
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

void memscope_chunk_walk_arena_fast_chunks(struct memscope_chunk_walk *walk, uintptr_t start,
                                           struct memscope_chunk_totals *totals) {
    struct memscope_glibc_heap_info info;
    struct heap heap = {0};
    uintptr_t top, size;

    if (!memscope_own_memory_read(walk->memory, start, &info, sizeof info) ||
        !memscope_own_memory_read(walk->memory, info.arena + TOP_OFFSET, &top, sizeof top))
        return;
    heap.end = start + info.size;
    if (top > start && top < heap.end && top % ALIGNMENT == 0 && memscope_chunk_walk_word(walk, top + WORD, &size) &&
        (size & ~SIZE_FLAGS) == heap.end - top)
        count_fast_chunks(walk, &heap, top, info.arena, totals);
}
