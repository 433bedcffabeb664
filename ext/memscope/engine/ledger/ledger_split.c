#include "ledger/glibc_pieces.h"
#include "ledger/ledger_scan.h"

#include <string.h>
#include <unistd.h>

#define WALKS 4 /* while threads allocate all the time, one walk in a hundred stops */

/*
 * Splits jemalloc's resident memory by jemalloc's own counters. The counters include some pages that were never
 * touched, or that are in a mapping that may be foreign (row not_resident, negative). They omit some resident pages:
 * retained pages that a huge page has made resident again (row retained_resident). If memory is allocated but no page
 * of the mappings found is resident, those mappings are not jemalloc's, even if their sizes match.
 */
void memscope_ledger_split_jemalloc(struct memscope_ledger *ledger) {
    const struct memscope_jemalloc_stats *stats = &ledger->jemalloc;
    int64_t *bytes = ledger->bytes, resident = bytes[MEMSCOPE_ROW_malloc], rest;
    uint64_t caches = stats->tcache_bytes + stats->tcache_stashed_bytes;

    if (resident == 0 && stats->allocated_bytes > 0)
        ledger->jemalloc_space_bytes = 0;
    bytes[MEMSCOPE_ROW_malloc] = 0;
    bytes[MEMSCOPE_ROW_in_use] = memscope_jemalloc_in_use(stats);
    bytes[MEMSCOPE_ROW_thread_caches] = (int64_t)caches;
    bytes[MEMSCOPE_ROW_slab_slack] = (int64_t)stats->slab_slack_bytes;
    bytes[MEMSCOPE_ROW_page_slack] =
        (int64_t)stats->active_bytes - (int64_t)stats->allocated_bytes - (int64_t)stats->slab_slack_bytes;
    bytes[MEMSCOPE_ROW_dirty] = (int64_t)(stats->pdirty * stats->page_bytes);
    bytes[MEMSCOPE_ROW_muzzy] = (int64_t)(stats->pmuzzy * stats->page_bytes);
    bytes[MEMSCOPE_ROW_metadata] = (int64_t)(stats->resident_bytes + stats->internal_bytes) -
                                   (int64_t)((stats->pactive + stats->pdirty) * stats->page_bytes);
    rest = resident - (int64_t)(stats->resident_bytes + stats->pmuzzy * stats->page_bytes);
    bytes[rest < 0 ? MEMSCOPE_ROW_not_resident : MEMSCOPE_ROW_retained_resident] = rest;
}

static void move(uint64_t bytes, int64_t *from, int64_t *to) {
    *to = (int64_t)bytes < *from ? (int64_t)bytes : *from;
    *from -= *to;
}

/*
 * Splits a row whose sub-rows are in the order of main_heap's. Bytes without a chunk go to the unwalked row: the walk
 * had to stop, or chunks were made or freed during it.
 */
static void split_by_chunks(int64_t *bytes, enum memscope_row row, const struct memscope_chunk_totals *chunks) {
    int64_t *rest = &bytes[row], *rows = bytes + (row - MEMSCOPE_ROW_main_heap);

    move(chunks->in_use.resident_bytes + chunks->arena.resident_bytes, rest, &rows[MEMSCOPE_ROW_main_heap_in_use]);
    move(chunks->free.resident_bytes, rest, &rows[MEMSCOPE_ROW_main_heap_free]);
    move(chunks->cached.resident_bytes, rest, &rows[MEMSCOPE_ROW_main_heap_thread_caches]);
    move(chunks->top.resident_bytes, rest, &rows[MEMSCOPE_ROW_main_heap_top]);
    move((uint64_t)*rest, rest, &rows[MEMSCOPE_ROW_main_heap_unwalked]);
}

/* Passes the walk the obstacles to malloc_trim, and the pages that other processes map too. */
static void prepare_for_trim(struct memscope_chunk_walk *walk, struct memscope_ledger *ledger) {
    walk->returns_nothing = ledger->return_status != MEMSCOPE_OK;
    walk->has_locked_memory = ledger->locked_bytes > 0;
    ledger->trim_shared_status = memscope_sharing_open(&walk->sharing, &ledger->work);
}

static void walk_main_heap(struct memscope_chunk_walk *walk, const struct memscope_ledger *ledger,
                           struct memscope_chunk_totals *totals) {
    const struct memscope_mappings *mappings = &ledger->mappings;
    uintptr_t heap_start = 0, heap_end = 0, program_break = (uintptr_t)sbrk(0);

    for (size_t index = 0; index < mappings->count; index++) {
        if (!memscope_mapping_is_program_break(&mappings->list[index]))
            continue;
        heap_start = heap_start == 0 ? mappings->list[index].start : heap_start;
        heap_end = mappings->list[index].end;
    }
    if (heap_end > program_break)
        heap_end = program_break;
    if (heap_end > heap_start)
        memscope_chunk_walk_main_heap(walk, heap_start, heap_end, totals);
}

/*
 * A piece that contains memory of other owners has several claims. All but the first start before `walked`, and are
 * skipped.
 */
static void walk_main_pieces(struct memscope_chunk_walk *walk, const struct memscope_ledger *ledger,
                             struct memscope_chunk_totals *totals) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), walked = 0;

    for (size_t index = 0; index < ledger->claims.settled; index++) {
        const struct memscope_claim *claim = &ledger->claims.list[index];

        if (claim->row != MEMSCOPE_ROW_main_heap || claim->start < walked)
            continue;
        walked = claim->start + claim->item * page;
        memscope_chunk_walk_piece(walk, claim->start, walked, totals);
    }
}

static void walk_arenas(struct memscope_chunk_walk *walk, const struct memscope_ledger *ledger,
                        struct memscope_chunk_totals *totals) {
    for (size_t index = 0; index < ledger->claims.settled; index++)
        if (ledger->claims.list[index].row == MEMSCOPE_ROW_arenas)
            memscope_chunk_walk_arena_heap(walk, ledger->claims.list[index].start, totals);
}

static void find_fast_chunks(struct memscope_chunk_walk *walk, const struct memscope_ledger *ledger) {
    uintptr_t main_top = memscope_glibc_main_top(walk->memory, ledger->request->images);

    memscope_chunk_walk_begin(walk);
    if (main_top != 0)
        memscope_chunk_walk_add_fast_chunks(walk, main_top);
    for (size_t index = 0; index < ledger->claims.settled; index++)
        if (ledger->claims.list[index].row == MEMSCOPE_ROW_arenas)
            memscope_chunk_walk_add_arena_fast_chunks(walk, ledger->claims.list[index].start);
    memscope_chunk_walk_sort_fast_chunks(walk);
}

void memscope_ledger_walk_chunks(struct memscope_chunk_walk *walk, const struct memscope_ledger *ledger,
                                 struct memscope_chunk_totals *main_heap, struct memscope_chunk_totals *arenas) {
    size_t used = walk->scratch->used;

    find_fast_chunks(walk, ledger);
    walk_main_heap(walk, ledger, main_heap);
    walk_main_pieces(walk, ledger, main_heap);
    walk_arenas(walk, ledger, arenas);
    walk->scratch->used = used;
}

/* A walk stops at a chunk that another thread is changing. The next walk seldom stops. */
static void walk_live_chunks(struct memscope_chunk_walk *walk, struct memscope_ledger *ledger) {
    bool incomplete = true;

    for (int left = WALKS; left > 0 && incomplete; left--) {
        ledger->main_heap = ledger->arenas = (struct memscope_chunk_totals){0};
        memscope_ledger_walk_chunks(walk, ledger, &ledger->main_heap, &ledger->arenas);
        incomplete = ledger->main_heap.incomplete || ledger->arenas.incomplete;
    }
}

void memscope_ledger_split_glibc(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    struct memscope_chunk_walk walk;

    if (!memscope_chunk_walk_open(&walk, &scan->memory, &ledger->residency, &ledger->work))
        return;
    prepare_for_trim(&walk, ledger);
    walk_live_chunks(&walk, ledger);
    if (ledger->trim_shared_status == MEMSCOPE_OK)
        ledger->trim_shared_status = memscope_sharing_close(&walk.sharing);
    split_by_chunks(ledger->bytes, MEMSCOPE_ROW_main_heap, &ledger->main_heap);
    split_by_chunks(ledger->bytes, MEMSCOPE_ROW_arenas, &ledger->arenas);
    ledger->bytes[MEMSCOPE_ROW_mmapped_in_use] = ledger->bytes[MEMSCOPE_ROW_mmapped];
    ledger->bytes[MEMSCOPE_ROW_mmapped] = 0;
    ledger->walked_chunks = true;
}

/* ---- garbage --------------------------------------------------------------------------------------------------- */

/* Other threads run between the ledger's scan and the mark phase, so there may be more garbage than the row has. */
void memscope_ledger_split_garbage(struct memscope_ledger *ledger, const uint64_t garbage[MEMSCOPE_ROW_COUNT]) {
    for (int row = 0; row < MEMSCOPE_ROW_COUNT; row++) {
        enum memscope_row all = memscope_row_definitions[row].parent;

        if (memscope_row_definitions[row].kind != MEMSCOPE_ROWS_OF_MARKED ||
            strcmp(memscope_row_definitions[row].id, "garbage") != 0)
            continue;
        move(garbage[all], &ledger->bytes[all], &ledger->bytes[row]);
        ledger->bytes[row - 1] = ledger->bytes[all]; /* the row before it is that of the reachable bytes */
        ledger->bytes[all] = 0;
    }
    ledger->marked = true;
}
