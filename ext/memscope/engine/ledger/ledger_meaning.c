#include "ledger/ledger_meaning.h"

static enum memscope_row_kind kind_of(enum memscope_row row) {
    return memscope_row_definitions[row].kind;
}

bool memscope_ledger_row_applies(const struct memscope_ledger *ledger, enum memscope_row row) {
    const struct memscope_ledger_request *request = ledger->request;

    switch (kind_of(row)) {
    case MEMSCOPE_ROWS_OF_PAGES:
        return true;
    case MEMSCOPE_ROWS_OF_LISTED_HEAP:
        return request->ruby->heap_page_count > 0;
    case MEMSCOPE_ROWS_OF_UNLISTED_HEAP:
        return request->ruby->heap_page_count == 0;
    case MEMSCOPE_ROWS_OF_GLIBC:
        return request->malloc == MEMSCOPE_ALLOCATOR_GLIBC;
    case MEMSCOPE_ROWS_OF_TRANSIENT_HEAP:
        return request->ruby->transient_heap_bytes > 0;
    case MEMSCOPE_ROWS_OF_SHAPE_TABLES:
        return request->ruby->shape_list_bytes > 0;
    case MEMSCOPE_ROWS_OF_CHUNKS:
        return ledger->walked_chunks;
    case MEMSCOPE_ROWS_OF_JEMALLOC:
        return ledger->jemalloc_status == MEMSCOPE_OK;
    case MEMSCOPE_ROWS_OF_MARKED:
        return ledger->marked && memscope_ledger_row_applies(ledger, memscope_row_definitions[row].parent);
    }
    return false;
}

bool memscope_ledger_row_shares_known(const struct memscope_ledger *ledger, enum memscope_row row) {
    return ledger->shared_status == MEMSCOPE_OK && kind_of(row) != MEMSCOPE_ROWS_OF_CHUNKS &&
           kind_of(row) != MEMSCOPE_ROWS_OF_JEMALLOC && kind_of(row) != MEMSCOPE_ROWS_OF_MARKED;
}

const struct memscope_chunk_sum *memscope_ledger_row_chunks(const struct memscope_ledger *ledger,
                                                            enum memscope_row row) {
    enum memscope_row heap = memscope_row_definitions[row].parent;
    const struct memscope_chunk_totals *totals = heap == MEMSCOPE_ROW_main_heap ? &ledger->main_heap : &ledger->arenas;

    if (!ledger->walked_chunks || (heap != MEMSCOPE_ROW_main_heap && heap != MEMSCOPE_ROW_arenas))
        return NULL;
    switch ((int)row - (int)heap + MEMSCOPE_ROW_main_heap) { /* both have the same rows */
    case MEMSCOPE_ROW_main_heap_in_use:
        return &totals->in_use;
    case MEMSCOPE_ROW_main_heap_free:
        return &totals->free;
    case MEMSCOPE_ROW_main_heap_thread_caches:
        return &totals->cached;
    case MEMSCOPE_ROW_main_heap_top:
        return &totals->top;
    default:
        return NULL;
    }
}

static struct memscope_row_check check_of(const char *source, uint64_t expected, uint64_t actual) {
    return (struct memscope_row_check){
        .source = source, .expected_bytes = expected, .actual_bytes = actual, .verified = expected == actual};
}

bool memscope_ledger_row_check(const struct memscope_ledger *ledger, enum memscope_row row,
                               struct memscope_row_check *check) {
    const struct memscope_ruby_layout *ruby = ledger->request->ruby;
    uint64_t page = ruby->heap_page_bytes, empty = ledger->ruby.empty_pages_found;
    uint64_t pages = ruby->heap_page_count + empty + ledger->ruby.whole_pages_found;

    if (row == MEMSCOPE_ROW_malloc && ledger->jemalloc_status == MEMSCOPE_OK)
        *check = check_of("jemalloc stats.mapped + stats.retained", memscope_ledger_jemalloc_expected(ledger),
                          ledger->jemalloc_space_bytes);
    else if (row == MEMSCOPE_ROW_ruby_heap && page > 0)
        *check = check_of("GC.stat heap_allocated_pages", ruby->allocated_page_count * page, pages * page);
    else if (row == MEMSCOPE_ROW_empty_pages && page > 0)
        *check = check_of("GC.stat empty pages", ruby->empty_page_count * page, empty * page);
    else
        return false;
    return true;
}

bool memscope_ledger_chunks_complete(const struct memscope_ledger *ledger) {
    return ledger->walked_chunks && !ledger->main_heap.incomplete && !ledger->arenas.incomplete;
}

bool memscope_ledger_malloc_in_use(const struct memscope_ledger *ledger, uint64_t *bytes) {
    int64_t in_use = memscope_jemalloc_in_use(&ledger->jemalloc);

    if (ledger->jemalloc_status == MEMSCOPE_OK && in_use >= 0)
        *bytes = (uint64_t)in_use;
    else if (memscope_ledger_chunks_complete(ledger))
        *bytes = ledger->main_heap.in_use.bytes + ledger->arenas.in_use.bytes + ledger->glibc.mmapped_bytes;
    else
        return false;
    return true;
}

bool memscope_ledger_trimmable(const struct memscope_ledger *ledger, uint64_t *bytes) {
    *bytes = ledger->main_heap.trimmable_bytes + ledger->arenas.trimmable_bytes;
    return memscope_ledger_chunks_complete(ledger);
}

bool memscope_ledger_trimmable_private(const struct memscope_ledger *ledger, uint64_t *bytes) {
    bool known = memscope_ledger_trimmable(ledger, bytes) && ledger->trim_shared_status == MEMSCOPE_OK;

    *bytes -= ledger->main_heap.trimmable_shared_bytes + ledger->arenas.trimmable_shared_bytes;
    return known;
}
