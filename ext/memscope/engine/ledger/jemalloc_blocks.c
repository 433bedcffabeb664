#include <unistd.h>

#include "ledger/malloc_blocks_parts.h"
#include "malloc/jemalloc_arenas.h"
#include "malloc/jemalloc_keys.h"

/* Slabs per batch_query. */
#define BATCH 64
/*
 * Slabs whose blocks in use may all be in thread caches are grouped by the bytes of these blocks: 64 steps of 1 KiB.
 */
#define STEPS 64
#define STEP_BYTES 1024

/* experimental.utilization.batch_query (5.2.0 and newer): for each block, figures of its extent. */
struct utilization {
    size_t free_regions, regions, bytes;
};

/* ---- geometry -------------------------------------------------------------------------------------------------- */

/* Resolves the names here, since the first lookup of a name takes a lock and must not happen in a forked child. */
bool memscope_jemalloc_blocks_open(struct memscope_malloc_blocks *blocks) {
    struct memscope_jemalloc_binding jemalloc = memscope_jemalloc_binding();
    struct memscope_jemalloc_classes classes;

    if (!jemalloc.by_mib || !jemalloc.block_size || blocks->ledger->jemalloc_status != MEMSCOPE_OK ||
        memscope_jemalloc_read_classes(&blocks->marks, false, MEMSCOPE_ALL_ARENAS, &classes) != MEMSCOPE_OK)
        return false;
    for (size_t bin = 0; bin < classes.count && !classes.list[bin].large; bin++) {
        const struct memscope_jemalloc_row *size = &classes.list[bin].size; /* bytes of a region and a slab, regions */

        if (bin == MEMSCOPE_SLAB_CLASSES || (size->known & 7) != 7)
            return false;
        blocks->classes[blocks->class_count++] = (struct memscope_slab_class){
            (uint32_t)size->values[0], (uint32_t)size->values[1], (uint32_t)size->values[2]};
    }
    blocks->batch_query = memscope_jemalloc_mib(&jemalloc, "experimental.utilization.batch_query");
    return true;
}

size_t memscope_jemalloc_block_bytes(uintptr_t address) {
    return memscope_jemalloc_binding().block_size((const void *)address, 0);
}

/* ---- counting -------------------------------------------------------------------------------------------------- */

/*
 * The page on which the slab of this region begins, 0 if none fits. A slab has the minimum number of pages that its
 * regions fill exactly (sc.c, slab_size), so only one candidate page is a multiple of the region's size before the
 * region.
 */
static uintptr_t slab_at(const struct memscope_slab_class *slab_class, uintptr_t address, uintptr_t page) {
    for (uintptr_t at = address & -page; address - at < slab_class->slab_bytes; at -= page)
        if ((address - at) % slab_class->region_bytes == 0)
            return at;
    return 0;
}

/* A large block has its own extent. cache_oblivious adds a page, and shifts the block's start within the first page. */
static void count_large(struct memscope_malloc_blocks *blocks, const struct memscope_malloc_region *region,
                        uintptr_t address, size_t bytes, uintptr_t page) {
    uintptr_t start = address & -page, end = start + bytes + (address % page != 0 ? page : 0);

    memscope_returned_add(blocks, &blocks->doomed_runs, start, end < region->end ? end : region->end, true);
}

void memscope_jemalloc_block_count(struct memscope_malloc_blocks *blocks, const struct memscope_malloc_region *region,
                                   uintptr_t address, size_t bytes, bool garbage) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start;
    size_t index = bytes > UINT32_MAX ? blocks->class_count
                                      : memscope_number_position(&blocks->classes->region_bytes, blocks->class_count,
                                                                 sizeof *blocks->classes, (uint32_t)bytes);
    struct memscope_slab *slab;

    if (index == blocks->class_count) {
        if (garbage)
            count_large(blocks, region, address, bytes, page);
        return;
    }
    start = slab_at(&blocks->classes[index], address, page);
    if (start < region->start)
        return;
    slab = &blocks->slabs[memscope_unit_at(blocks, region, start) * blocks->unit_bytes / page];
    slab->slab_class = (uint8_t)index;
    slab->garbage = (uint16_t)(slab->garbage + garbage);
    slab->owned = (uint16_t)(slab->owned + !garbage);
}

/* ---- pages that a purge returns ---------------------------------------------------------------------------------- */

struct forecast {
    struct memscope_malloc_blocks *blocks;
    struct memscope_blocks_returned *returned;
    struct memscope_jemalloc_binding jemalloc;
    const void *addresses[BATCH];
    const struct memscope_slab *slabs[BATCH];
    size_t asked;
    struct memscope_returned kept_by_caches[STEPS]; /* slabs, by the cached bytes that keep them */
    uint64_t keeping_bytes[STEPS];
    bool unanswered;
};

static void add_slab(struct forecast *forecast, size_t index, const struct utilization *utilization) {
    const struct memscope_slab *slab = forecast->slabs[index];
    const struct memscope_slab_class *slab_class = &forecast->blocks->classes[slab->slab_class];
    uintptr_t start = (uintptr_t)forecast->addresses[index];
    size_t used = utilization->regions - utilization->free_regions, others;

    if (utilization->regions != slab_class->regions || utilization->free_regions > utilization->regions ||
        used < slab->garbage)
        return;
    others = used - slab->garbage;
    if (others == 0) {
        memscope_returned_add(forecast->blocks, &forecast->returned->by_trim, start, start + slab_class->slab_bytes,
                              true);
    } else if (slab->owned == 0 && others * slab_class->region_bytes < (uint64_t)STEPS * STEP_BYTES) {
        size_t step = others * slab_class->region_bytes / STEP_BYTES;

        forecast->keeping_bytes[step] += others * slab_class->region_bytes;
        memscope_returned_add(forecast->blocks, &forecast->kept_by_caches[step], start, start + slab_class->slab_bytes,
                              false);
    }
}

static void ask(struct forecast *forecast) {
    const struct memscope_mib *query = &forecast->blocks->batch_query;
    struct utilization answers[BATCH];
    size_t length = forecast->asked * sizeof answers[0];

    if (forecast->asked == 0)
        return;
    if (forecast->jemalloc.by_mib(query->parts, query->length, answers, &length, (void *)forecast->addresses,
                                  forecast->asked * sizeof forecast->addresses[0]) != 0)
        forecast->unanswered = true;
    for (size_t index = 0; index < forecast->asked && !forecast->unanswered; index++)
        add_slab(forecast, index, &answers[index]);
    forecast->asked = 0;
}

static void add_slabs(struct forecast *forecast) {
    struct memscope_malloc_blocks *blocks = forecast->blocks;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (size_t index = 0; index < blocks->region_count; index++) {
        const struct memscope_malloc_region *region = &blocks->regions[index];
        const struct memscope_slab *slab = &blocks->slabs[region->first_unit * blocks->unit_bytes / page];

        for (uintptr_t start = region->start; start < region->end; start += page, slab++) {
            if (slab->garbage == 0)
                continue;
            forecast->addresses[forecast->asked] = (const void *)start;
            forecast->slabs[forecast->asked++] = slab;
            if (forecast->asked == BATCH)
                ask(forecast);
        }
    }
    ask(forecast);
}

/*
 * Cached blocks look in use, and are freed when thread caches are flushed. The cached bytes limit the number of slabs
 * that a flush can empty.
 */
static void add_kept_by_caches(struct forecast *forecast) {
    const struct memscope_jemalloc_stats *stats = &forecast->blocks->ledger->jemalloc;
    uint64_t cached = stats->tcache_bytes + stats->tcache_stashed_bytes;

    for (size_t step = 0; step < STEPS && cached > 0; step++) {
        struct memscope_returned *kept = &forecast->kept_by_caches[step];
        uint64_t needed = forecast->keeping_bytes[step];
        double share = needed <= cached ? 1 : (double)cached / (double)needed;

        forecast->returned->by_trim.most += (uint64_t)((double)kept->most * share);
        forecast->returned->by_trim.private_most += (uint64_t)((double)kept->private_most * share);
        cached -= needed < cached ? needed : cached;
    }
}

static uint64_t shared_bytes(const struct memscope_malloc_blocks *blocks) {
    uint64_t bytes = 0;

    for (size_t index = 0; index < blocks->region_count; index++) {
        struct memscope_returned region = {0};

        memscope_returned_add(blocks, &region, blocks->regions[index].start, blocks->regions[index].end, true);
        bytes += region.most - region.private_most;
    }
    return bytes;
}

/* jemalloc does not report its unused pages, so any page that other processes map too may be one of them. */
static void add_unused(struct forecast *forecast) {
    const struct memscope_jemalloc_stats *stats = &forecast->blocks->ledger->jemalloc;
    int64_t untouched = forecast->blocks->ledger->bytes[MEMSCOPE_ROW_not_resident];
    uint64_t unused = (stats->pdirty + stats->pmuzzy) * stats->page_bytes;
    uint64_t least = (uint64_t)-untouched < unused ? unused - (uint64_t)-untouched : 0;
    uint64_t shared = shared_bytes(forecast->blocks), own = least > shared ? least - shared : 0;

    forecast->returned->today = (struct memscope_returned){least, unused, own, unused};
    forecast->returned->by_trim.least += least;
    forecast->returned->by_trim.private_least += own;
    forecast->returned->by_trim.most += unused;
    forecast->returned->by_trim.private_most += unused;
}

enum memscope_status memscope_jemalloc_blocks_returned(struct memscope_malloc_blocks *blocks,
                                                       struct memscope_blocks_returned *returned) {
    struct forecast forecast = {.blocks = blocks, .returned = returned, .jemalloc = memscope_jemalloc_binding()};

    if (blocks->batch_query.length == 0)
        return MEMSCOPE_UNSUPPORTED;
    returned->by_trim = blocks->doomed_runs;
    add_slabs(&forecast);
    if (forecast.unanswered)
        return MEMSCOPE_MALFORMED;
    add_kept_by_caches(&forecast);
    add_unused(&forecast);
    return MEMSCOPE_OK;
}
