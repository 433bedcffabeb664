#include "ledger/ledger_scan.h"

#include <string.h>
#include <unistd.h>

/*
 * Splits what is resident in jemalloc's mappings by jemalloc's own counters. They count some pages that were never
 * touched, or lie in a mapping that may be another's (not_resident, negative), or leave some resident pages uncounted
 * (retained ones that huge pages filled again).
 */
void memscope_ledger_split_jemalloc(struct memscope_ledger *ledger) {
    const struct memscope_jemalloc_stats *stats = &ledger->jemalloc;
    int64_t *bytes = ledger->bytes, resident = bytes[MEMSCOPE_ROW_in_use], rest;
    uint64_t caches = stats->tcache_bytes + stats->tcache_stashed_bytes;

    ledger->shared_bytes[MEMSCOPE_ROW_malloc] = ledger->shared_bytes[MEMSCOPE_ROW_in_use];
    ledger->shared_bytes[MEMSCOPE_ROW_in_use] = 0;
    bytes[MEMSCOPE_ROW_in_use] = (int64_t)(stats->allocated_bytes - caches);
    bytes[MEMSCOPE_ROW_thread_caches] = (int64_t)caches;
    bytes[MEMSCOPE_ROW_slab_slack] = (int64_t)stats->slab_slack_bytes;
    bytes[MEMSCOPE_ROW_page_slack] =
        (int64_t)stats->active_bytes - (int64_t)stats->allocated_bytes - (int64_t)stats->slab_slack_bytes;
    bytes[MEMSCOPE_ROW_dirty] = (int64_t)(stats->pdirty * stats->page_bytes);
    bytes[MEMSCOPE_ROW_muzzy] = (int64_t)(stats->pmuzzy * stats->page_bytes);
    bytes[MEMSCOPE_ROW_metadata] =
        (int64_t)stats->resident_bytes - (int64_t)((stats->pactive + stats->pdirty) * stats->page_bytes);
    rest = resident - (int64_t)(stats->resident_bytes + stats->pmuzzy * stats->page_bytes);
    bytes[rest < 0 ? MEMSCOPE_ROW_not_resident : MEMSCOPE_ROW_retained_resident] = rest;
}

/*
 * Splits one row of glibc's by the chunks found in it. What is left of it (a walk that had to stop, chunks that came
 * or went meanwhile) stays under unwalked; the rows in front of it are in the order of enum memscope_row.
 */
static void split_by_chunks(struct memscope_ledger *ledger, enum memscope_row row, enum memscope_row in_use,
                            const struct memscope_chunk_totals *chunks) {
    int64_t parts[] = {(int64_t)(chunks->in_use.resident_bytes + chunks->arena.resident_bytes),
                       (int64_t)chunks->free.resident_bytes, (int64_t)chunks->cached.resident_bytes,
                       (int64_t)chunks->top.resident_bytes};
    int64_t rest = ledger->bytes[row];

    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        int64_t bytes = parts[part] < rest ? parts[part] : rest;

        ledger->bytes[in_use + part] = bytes;
        rest -= bytes;
    }
    ledger->bytes[in_use + sizeof parts / sizeof parts[0]] = rest;
    ledger->bytes[row] = 0;
}

void memscope_ledger_split_glibc(struct memscope_ledger_reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    const struct memscope_mappings *mappings = &ledger->mappings;
    uintptr_t heap_start = 0, heap_end = 0, program_break = (uintptr_t)sbrk(0);
    struct memscope_chunk_walk walk;

    if (!memscope_chunk_walk_open(&walk, &reading->memory, &ledger->residency, reading->request->images, &ledger->work))
        return;
    for (size_t index = 0; index < mappings->count; index++) {
        if (strcmp(mappings->list[index].name, "[heap]") != 0)
            continue;
        heap_start = heap_start == 0 ? mappings->list[index].start : heap_start;
        heap_end = mappings->list[index].end;
    }
    if (heap_end > program_break)
        heap_end = program_break;
    if (heap_end > heap_start)
        memscope_chunk_walk_main_heap(&walk, heap_start, heap_end, &ledger->main_heap);
    for (size_t index = 0; index < reading->claims.count; index++)
        if (reading->claims.list[index].row == MEMSCOPE_ROW_arenas)
            memscope_chunk_walk_arena_heap(&walk, reading->claims.list[index].start, &ledger->arenas);
    for (size_t index = 0; index < reading->claims.count; index++)
        if (reading->claims.list[index].row == MEMSCOPE_ROW_arenas)
            memscope_chunk_walk_arena_fast_chunks(&walk, reading->claims.list[index].start, &ledger->arenas);
    split_by_chunks(ledger, MEMSCOPE_ROW_main_heap, MEMSCOPE_ROW_main_heap_in_use, &ledger->main_heap);
    split_by_chunks(ledger, MEMSCOPE_ROW_arenas, MEMSCOPE_ROW_arenas_in_use, &ledger->arenas);
    ledger->bytes[MEMSCOPE_ROW_mmapped_in_use] = ledger->bytes[MEMSCOPE_ROW_mmapped];
    ledger->bytes[MEMSCOPE_ROW_mmapped] = 0;
    ledger->walked_chunks = true;
}
