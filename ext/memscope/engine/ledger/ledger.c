#include "ledger/ledger_scan.h"

#include <string.h>

#define ROW(row, id, parent, kind, label) {#id, MEMSCOPE_ROW_##parent, MEMSCOPE_ROWS_OF_##kind, label},
const struct memscope_row_definition memscope_row_definitions[MEMSCOPE_ROW_COUNT] = {
#include "ledger/ledger_rows.def"
};

_Static_assert(MEMSCOPE_ROW_arenas_unwalked - MEMSCOPE_ROW_arenas ==
                   MEMSCOPE_ROW_main_heap_unwalked - MEMSCOPE_ROW_main_heap,
               "arenas has the rows of main_heap");

/* Of the row and the rows below it. */
static int64_t sum_of(const int64_t *bytes, enum memscope_row row) {
    int64_t sum = bytes[row];

    for (int child = 0; child < MEMSCOPE_ROW_COUNT; child++)
        if (memscope_row_definitions[child].parent == row)
            sum += sum_of(bytes, (enum memscope_row)child);
    return sum;
}

int64_t memscope_ledger_row_bytes(const struct memscope_ledger *ledger, enum memscope_row row) {
    return sum_of(ledger->bytes, row);
}

uint64_t memscope_ledger_row_shared_bytes(const struct memscope_ledger *ledger, enum memscope_row row) {
    return (uint64_t)sum_of((const int64_t *)ledger->shared_bytes, row);
}

/*
 * Reads the list of mappings and, as soon after it as possible, jemalloc's counters. Then claims memory for the owners
 * whose places are known.
 */
static enum memscope_status read_mappings_in(struct memscope_ledger_scan *scan, bool smaps) {
    struct memscope_ledger *ledger = scan->ledger;
    enum memscope_status status = memscope_mappings_read(smaps, &scan->lists, &ledger->mappings);

    ledger->jemalloc_status = scan->request->malloc == MEMSCOPE_ALLOCATOR_JEMALLOC
                                  ? memscope_jemalloc_read_stats(&ledger->jemalloc)
                                  : MEMSCOPE_UNSUPPORTED;
    if (status != MEMSCOPE_OK)
        return status;
    ledger->stacks = (struct memscope_stack_counts){0};
    ledger->ruby = (struct memscope_ruby_regions){0};
    ledger->glibc = (struct memscope_glibc_regions){0};
    memscope_claims_open(&ledger->claims, &ledger->claim_memory, &ledger->work);
    memscope_ledger_claim_known(scan);
    return MEMSCOPE_OK;
}

/*
 * Identifies jemalloc's mappings by exclusion, which walks no page tables. If the result disagrees with jemalloc's
 * counters, excludes the heaps of glibc's arenas too, if there are any, and finally uses MAP_NORESERVE from smaps.
 * Tries each way twice, since another thread may have mapped memory between the list and the counters.
 */
static enum memscope_status read_mappings(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    size_t list_used = ledger->work.used, names_used = ledger->list.used;

    for (int attempt = 1;; attempt++) {
        bool smaps = attempt > 2, beside;
        enum memscope_status status;

        ledger->work.used = list_used;
        ledger->list.used = names_used;
        ledger->claim_memory.used = 0;
        status = read_mappings_in(scan, smaps);
        if (status != MEMSCOPE_OK || ledger->jemalloc_status != MEMSCOPE_OK)
            return status;
        if (!smaps && memscope_ledger_mark_jemalloc_by_exclusion(scan))
            return MEMSCOPE_OK;
        beside = memscope_ledger_claim_beside_jemalloc(scan);
        if (!smaps && beside && memscope_ledger_mark_jemalloc_by_exclusion(scan))
            return MEMSCOPE_OK;
        if (!smaps)
            continue;
        memscope_ledger_mark_jemalloc_by_noreserve(scan);
        if (attempt == 4 || ledger->jemalloc_space_bytes == memscope_ledger_jemalloc_expected(ledger))
            return MEMSCOPE_OK;
    }
}

/*
 * If other threads mapped memory between the list and the scan, lists the mappings again, since memory outside all
 * listed mappings has no owner, and claims the stacks made in between. Under jemalloc, keeps the list as it is, because
 * jemalloc's counters were read along with it.
 */
static enum memscope_status list_what_was_mapped_since(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    enum memscope_status status;

    if (ledger->jemalloc_status == MEMSCOPE_OK || memscope_residency_is_listed(&ledger->residency, &ledger->mappings))
        return MEMSCOPE_OK;
    status = memscope_mappings_read(false, &scan->lists, &ledger->mappings);
    if (status == MEMSCOPE_OK)
        memscope_ledger_claim_known(scan);
    return status;
}

static enum memscope_status read_residency(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    enum memscope_status status;

    ledger->statm_status = memscope_statm_read(&ledger->statm_before);
    status = memscope_residency_read(&ledger->mappings, &scan->lists, &ledger->residency);
    if (ledger->statm_status == MEMSCOPE_OK)
        ledger->statm_status = memscope_statm_read(&ledger->statm_after);
    return status == MEMSCOPE_OK ? list_what_was_mapped_since(scan) : status;
}

static enum memscope_status attribute(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;

    if (ledger->jemalloc_status == MEMSCOPE_OK && ledger->residency.relisted &&
        !memscope_ledger_mark_jemalloc_by_exclusion(scan))
        memscope_ledger_mark_jemalloc_by_noreserve(scan);
    memscope_ledger_claim_found(scan);
    if (!ledger->claims.exhausted)
        memscope_ledger_sweep(scan);
    if (ledger->claims.exhausted)
        return MEMSCOPE_NO_MEMORY;
    if (ledger->jemalloc_status == MEMSCOPE_OK)
        memscope_ledger_split_jemalloc(ledger);
    if (scan->request->deep && scan->request->malloc == MEMSCOPE_ALLOCATOR_GLIBC &&
        ledger->own_memory_status == MEMSCOPE_OK && ledger->residency.range_count > 0)
        memscope_ledger_split_glibc(scan);
    return MEMSCOPE_OK;
}

enum memscope_status memscope_ledger_read(const struct memscope_ledger_request *request,
                                          struct memscope_ledger *ledger) {
    struct memscope_ledger_scan scan = {.request = request,
                                        .ledger = ledger,
                                        .lists = {&ledger->work, &ledger->list},
                                        .search = {&ledger->mappings, NULL, &scan.memory, &ledger->claims}};
    enum memscope_status status;

    memset(ledger, 0, sizeof *ledger);
    ledger->request = request;
    memscope_statm_read(&ledger->statm_before); /* the first call maps memory, which must be in the list of mappings */
    if ((status = memscope_scratch_open(&ledger->work)) != MEMSCOPE_OK ||
        (status = memscope_scratch_open(&ledger->list)) != MEMSCOPE_OK ||
        (status = memscope_scratch_open(&ledger->claim_memory)) != MEMSCOPE_OK)
        return status;
    ledger->own_memory_status = memscope_own_memory_open(&scan.memory);
    ledger->own_memory_refusal = scan.memory.refusal;
    status = read_mappings(&scan);
    if (status == MEMSCOPE_OK)
        status = read_residency(&scan);
    if (status == MEMSCOPE_OK)
        status = attribute(&scan);
    memscope_own_memory_close(&scan.memory);
    ledger->scratch_bytes = ledger->work.used + ledger->list.used + ledger->claim_memory.used;
    return status;
}

void memscope_ledger_close(struct memscope_ledger *ledger) {
    memscope_scratches_close(&ledger->work, &ledger->list, &ledger->claim_memory);
}
