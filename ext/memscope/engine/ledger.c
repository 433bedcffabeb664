#include "ledger_reading.h"

#include <string.h>

#define ROW(row, id, parent, label) {#id, MEMSCOPE_ROW_##parent, label},
const struct memscope_row_definition memscope_row_definitions[MEMSCOPE_ROW_COUNT] = {
#include "ledger_rows.def"
};
#undef ROW

int64_t memscope_ledger_row_bytes(const struct memscope_ledger *ledger, enum memscope_row row) {
    int64_t bytes = ledger->bytes[row];

    for (int child = 0; child < MEMSCOPE_ROW_COUNT; child++)
        if (memscope_row_definitions[child].parent == row)
            bytes += memscope_ledger_row_bytes(ledger, (enum memscope_row)child);
    return bytes;
}

uint64_t memscope_ledger_row_shared_bytes(const struct memscope_ledger *ledger, enum memscope_row row) {
    uint64_t bytes = ledger->shared_bytes[row];

    for (int child = 0; child < MEMSCOPE_ROW_COUNT; child++)
        if (memscope_row_definitions[child].parent == row)
            bytes += memscope_ledger_row_shared_bytes(ledger, (enum memscope_row)child);
    return bytes;
}

/* Reads jemalloc's counters and the mappings as close together as can be; again once when they do not agree. */
static enum memscope_status read_mappings(struct memscope_ledger_reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    enum memscope_status status;

    ledger->jemalloc_status = MEMSCOPE_UNSUPPORTED;
    if (reading->request->malloc != MEMSCOPE_LEDGER_MALLOC_JEMALLOC)
        return memscope_mappings_read(&reading->lists, &ledger->mappings);
    for (int attempt = 0; attempt < 2; attempt++) {
        size_t list_used = ledger->work.used, names_used = ledger->list.used;

        status = memscope_mappings_read_smaps(&reading->lists, &ledger->mappings);
        ledger->jemalloc_status = memscope_jemalloc_read_stats(&ledger->jemalloc);
        if (status != MEMSCOPE_OK || ledger->jemalloc_status != MEMSCOPE_OK)
            break;
        memscope_ledger_tell_foreign(reading);
        if (ledger->noreserve_bytes == memscope_ledger_jemalloc_expected(ledger) || attempt > 0)
            break;
        ledger->work.used = list_used;
        ledger->list.used = names_used;
    }
    return status;
}

static enum memscope_status read_residency(struct memscope_ledger_reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;
    enum memscope_status status;

    ledger->statm_status = memscope_statm_read(&ledger->statm_before);
    status = memscope_residency_read(&ledger->mappings, &reading->lists, &ledger->residency);
    if (ledger->statm_status == MEMSCOPE_OK)
        ledger->statm_status = memscope_statm_read(&ledger->statm_after);
    return status;
}

static enum memscope_status attribute(struct memscope_ledger_reading *reading) {
    struct memscope_ledger *ledger = reading->ledger;

    if (ledger->jemalloc_status == MEMSCOPE_OK)
        memscope_ledger_tell_foreign(reading); /* the residency reader may have listed the mappings anew */
    memscope_claims_open(&reading->claims, &ledger->list, &ledger->work);
    memscope_ledger_claim_owners(reading);
    if (!reading->claims.exhausted)
        memscope_ledger_sweep(reading);
    if (reading->claims.exhausted)
        return MEMSCOPE_NO_MEMORY;
    if (ledger->jemalloc_status == MEMSCOPE_OK)
        memscope_ledger_split_jemalloc(ledger);
    if (reading->request->deep && reading->request->malloc == MEMSCOPE_LEDGER_MALLOC_GLIBC &&
        ledger->own_memory_status == MEMSCOPE_OK && ledger->residency.range_count > 0)
        memscope_ledger_split_glibc(reading);
    return MEMSCOPE_OK;
}

enum memscope_status memscope_ledger_read(const struct memscope_ledger_request *request,
                                          struct memscope_ledger *ledger) {
    struct memscope_ledger_reading reading = {
        .request = request, .ledger = ledger, .lists = {&ledger->work, &ledger->list}};
    enum memscope_status status;

    memset(ledger, 0, sizeof *ledger);
    memscope_statm_read(&ledger->statm_before); /* so that what it maps the first time is in the list of mappings */
    if ((status = memscope_scratch_open(&ledger->work)) != MEMSCOPE_OK ||
        (status = memscope_scratch_open(&ledger->list)) != MEMSCOPE_OK)
        return status;
    if ((status = read_mappings(&reading)) != MEMSCOPE_OK || (status = read_residency(&reading)) != MEMSCOPE_OK)
        return status;
    ledger->own_memory_status = memscope_own_memory_open(&reading.memory);
    status = attribute(&reading);
    memscope_own_memory_close(&reading.memory);
    ledger->scratch_bytes = ledger->work.used + ledger->list.used;
    return status;
}

void memscope_ledger_close(struct memscope_ledger *ledger) {
    memscope_scratch_close(&ledger->work);
    memscope_scratch_close(&ledger->list);
}
