#include "ledger/glibc_layout.h"
#include "ledger/ledger_scan.h"
#include "ledger/malloc_blocks_parts.h"
#include "malloc/allocator_settings.h"

/*
 * The largest chunk that a thread's tcache keeps, unless glibc.malloc.tcache_max is raised. Such a chunk and the fields
 * of a free chunk after it touch at most two pages.
 */
#define MAX_CACHED (64 * ALIGNMENT + ALIGNMENT)
#define CACHED_PAGES 2

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

/* The size of the chunk with its header, 0 unless the next chunk's PREV_INUSE marks this one as in use. */
size_t memscope_glibc_block_bytes(const struct memscope_malloc_region *region, uintptr_t address) {
    uintptr_t chunk = address - ALIGNMENT, size;

    if (region->row == MEMSCOPE_ROW_mmapped_in_use)
        return chunk == region->start ? region->end - region->start : 0;
    if (chunk < region->start)
        return 0;
    size = *(const uintptr_t *)(chunk + WORD) & ~SIZE_FLAGS;
    if (size < MIN_CHUNK || size % ALIGNMENT != 0 || size > region->end - chunk ||
        region->end - chunk - size < ALIGNMENT)
        return 0;
    return *(const uintptr_t *)(chunk + size + WORD) & PREVIOUS_IN_USE ? size : 0;
}

/* ---- pages that malloc_trim returns ------------------------------------------------------------------------------ */

struct forecast {
    struct memscope_malloc_blocks *blocks;
    struct memscope_blocks_returned *returned;
    struct run {
        struct memscope_range chunks; /* adjacent, free or soon so, which malloc coalesces. Empty if start equals end */
        struct memscope_returned *returned;
    } after, today; /* once the garbage is freed, and as the heap is now */
    uint64_t cacheable;
    bool kept; /* the kernel might refuse to take back pages within a heap */
};

static void add_pages(const struct forecast *forecast, struct memscope_returned *returned, struct memscope_range run,
                      bool certain) {
    struct memscope_range pages = memscope_pages_of_free_chunk(run.start, run.end);

    if (pages.end > pages.start)
        memscope_returned_add(forecast->blocks, returned, pages.start, pages.end, certain);
}

static void finish(const struct forecast *forecast, struct run *run) {
    add_pages(forecast, run->returned, run->chunks, !forecast->kept);
    run->chunks = (struct memscope_range){0, 0};
}

/* Adds a chunk to the run before it, or to a new one, if it is free. Otherwise ends the run. */
static void pass(const struct forecast *forecast, struct run *run, bool free, uintptr_t start, uintptr_t end) {
    if (!free || run->chunks.end != start)
        finish(forecast, run);
    if (free)
        run->chunks = (struct memscope_range){run->chunks.end == start ? run->chunks.start : start, end};
}

/*
 * Joins the top chunk with the run before it. systrim trims the top of the main heap. heap_trim trims the top of
 * another heap when a call of free makes that top large.
 */
static void end_at_top(struct forecast *forecast, uintptr_t start, uintptr_t end, bool main) {
    struct memscope_blocks_returned *returned = forecast->returned;
    struct memscope_range after, today;

    pass(forecast, &forecast->after, true, start, end);
    pass(forecast, &forecast->today, true, start, end);
    after = forecast->after.chunks;
    today = forecast->today.chunks;
    if (main)
        add_pages(forecast, &returned->today, today, true);
    if (main || after.start < today.start)
        add_pages(forecast, &returned->by_trim, after, main);
    if (after.start < today.start)
        add_pages(forecast, &returned->at_once, after, false);
    forecast->after.chunks = forecast->today.chunks = (struct memscope_range){0, 0};
}

static void visit(void *context, enum memscope_chunk_kind kind, uintptr_t start, uintptr_t end) {
    struct forecast *forecast = context;
    struct memscope_malloc_blocks *blocks = forecast->blocks;
    const struct memscope_malloc_region *region;
    bool free = kind == MEMSCOPE_CHUNK_FREE || kind == MEMSCOPE_CHUNK_FAST, doomed = false;

    if (kind == MEMSCOPE_CHUNK_TOP || kind == MEMSCOPE_CHUNK_MAIN_TOP) {
        end_at_top(forecast, start, end, kind == MEMSCOPE_CHUNK_MAIN_TOP);
        return;
    }
    if (kind == MEMSCOPE_CHUNK_IN_USE)
        forecast->returned->in_use_bytes += end - start;
    if (!free && (region = memscope_malloc_region_at(blocks, start + ALIGNMENT)) != NULL) {
        doomed = memscope_bit(blocks->doomed, memscope_unit_at(blocks, region, start + ALIGNMENT));
        forecast->cacheable += doomed && end - start <= MAX_CACHED;
    }
    pass(forecast, &forecast->after, free || doomed, start, end);
    pass(forecast, &forecast->today, free, start, end);
}

static void add_mapped_chunks(struct forecast *forecast) {
    struct memscope_malloc_blocks *blocks = forecast->blocks;

    for (size_t index = 0; index < blocks->region_count; index++) {
        const struct memscope_malloc_region *region = &blocks->regions[index];

        if (region->row != MEMSCOPE_ROW_mmapped_in_use)
            continue;
        forecast->returned->in_use_bytes += region->end - region->start;
        if (!memscope_bit(blocks->doomed, memscope_unit_at(blocks, region, region->start + ALIGNMENT)))
            continue;
        memscope_returned_add(blocks, &forecast->returned->by_trim, region->start, region->end, true);
        memscope_returned_add(blocks, &forecast->returned->at_once, region->start, region->end, true);
    }
}

/* Lowers the lower bounds by this many bytes, but not below `sure`. */
static void lower(struct memscope_returned *returned, const struct memscope_returned *sure, uint64_t bytes) {
    returned->least = returned->least - sure->least > bytes ? returned->least - bytes : sure->least;
    returned->private_least =
        returned->private_least - sure->private_least > bytes ? returned->private_least - bytes : sure->private_least;
}

/* Each chunk that stays in a thread cache keeps its pages. Chunks that are free today are in no cache. */
static void allow_for_the_cache(struct memscope_blocks_returned *returned, uint64_t cacheable) {
    const struct memscope_returned nothing = {0};
    uint64_t slots = memscope_glibc_cache_slots(), page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (slots == UINT64_MAX) {
        lower(&returned->by_trim, &returned->today, UINT64_MAX);
        lower(&returned->at_once, &nothing, UINT64_MAX);
    } else {
        lower(&returned->by_trim, &returned->today, (cacheable < slots ? cacheable : slots) * CACHED_PAGES * page);
    }
}

/* Raises the upper bounds, since memory that the walks did not reach may be free. */
static void allow_for_the_unwalked(struct memscope_blocks_returned *returned, uint64_t bytes) {
    struct memscope_returned *const all[] = {&returned->by_trim, &returned->at_once, &returned->today};

    for (size_t index = 0; index < sizeof all / sizeof all[0]; index++) {
        all[index]->most += bytes;
        all[index]->private_most += bytes;
    }
}

static void walk_heaps(struct forecast *forecast, struct memscope_chunk_walk *walk) {
    struct memscope_chunk_totals main_heap = {0}, arenas = {0};

    walk->visitor = visit;
    walk->visitor_context = forecast;
    memscope_ledger_walk_chunks(walk, forecast->blocks->ledger, &main_heap, &arenas);
    finish(forecast, &forecast->after);
    finish(forecast, &forecast->today);
    allow_for_the_unwalked(forecast->returned, main_heap.unwalked_bytes + arenas.unwalked_bytes);
}

enum memscope_status memscope_glibc_blocks_returned(struct memscope_malloc_blocks *blocks,
                                                    struct memscope_blocks_returned *returned) {
    const struct memscope_ledger *ledger = blocks->ledger;
    struct forecast forecast = {.blocks = blocks,
                                .returned = returned,
                                .after = {.returned = &returned->by_trim},
                                .today = {.returned = &returned->today},
                                .kept = ledger->return_status != MEMSCOPE_OK || ledger->locked_bytes > 0};
    struct memscope_own_memory memory;
    struct memscope_chunk_walk walk;
    struct memscope_scratch work;
    enum memscope_status status = memscope_own_memory_open(&memory);

    if (status == MEMSCOPE_OK)
        status = memscope_scratch_open(&work);
    if (status == MEMSCOPE_OK) {
        if (memscope_chunk_walk_open(&walk, &memory, &ledger->residency, &work))
            walk_heaps(&forecast, &walk);
        else
            status = MEMSCOPE_NO_MEMORY;
        memscope_scratch_close(&work);
    }
    memscope_own_memory_close(&memory);
    add_mapped_chunks(&forecast);
    allow_for_the_cache(returned, forecast.cacheable);
    return status;
}
