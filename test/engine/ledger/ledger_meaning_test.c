/* What the rows of made-up ledgers mean: which apply, what is checked, what malloc has given out. Silent when right. */
#include "../expect.h"
#include "ledger/ledger_meaning.h"

#include <string.h>

static const struct memscope_ruby_layout ruby_33 = {.heap_page_bytes = 65536,
                                                    .heap_page_count = 90,
                                                    .empty_page_count = 10,
                                                    .allocated_page_count = 100,
                                                    .shape_list_bytes = 4096};
static const struct memscope_ruby_layout beside_ractors = {.heap_page_bytes = 65536, .allocated_page_count = 100};
static const struct memscope_ruby_layout ruby_31 = {.transient_heap_bytes = 4096};

static struct memscope_ledger_request request;

static struct memscope_ledger ledger_of(enum memscope_allocator_name malloc_kind,
                                        const struct memscope_ruby_layout *ruby) {
    struct memscope_ledger ledger = {.request = &request, .jemalloc_status = MEMSCOPE_UNSUPPORTED};

    request = (struct memscope_ledger_request){.malloc = malloc_kind, .ruby = ruby};
    if (malloc_kind == MEMSCOPE_ALLOCATOR_JEMALLOC)
        ledger.jemalloc_status = MEMSCOPE_OK;
    return ledger;
}

static int count_applying(const struct memscope_ledger *ledger, enum memscope_row_kind kind) {
    int count = 0;

    for (int row = 0; row < MEMSCOPE_ROW_COUNT; row++)
        count +=
            memscope_row_definitions[row].kind == kind && memscope_ledger_row_applies(ledger, (enum memscope_row)row);
    return count;
}

static void test_rows_of_each_allocator(void) {
    struct memscope_ledger other = ledger_of(MEMSCOPE_ALLOCATOR_UNKNOWN, &ruby_33), glibc, jemalloc;

    EXPECT(count_applying(&other, MEMSCOPE_ROWS_OF_GLIBC) == 0 && count_applying(&other, MEMSCOPE_ROWS_OF_CHUNKS) == 0);
    EXPECT(count_applying(&other, MEMSCOPE_ROWS_OF_JEMALLOC) == 0);
    EXPECT(memscope_ledger_row_applies(&other, MEMSCOPE_ROW_malloc));
    glibc = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &ruby_33);
    EXPECT(count_applying(&glibc, MEMSCOPE_ROWS_OF_GLIBC) == 3 && count_applying(&glibc, MEMSCOPE_ROWS_OF_CHUNKS) == 0);
    glibc.walked_chunks = true;
    EXPECT(count_applying(&glibc, MEMSCOPE_ROWS_OF_CHUNKS) == 11);
    EXPECT(count_applying(&glibc, MEMSCOPE_ROWS_OF_MARKED) == 0);
    glibc.marked = true;
    EXPECT(count_applying(&glibc, MEMSCOPE_ROWS_OF_MARKED) == 8);
    jemalloc = ledger_of(MEMSCOPE_ALLOCATOR_JEMALLOC, &ruby_33);
    jemalloc.marked = true;
    EXPECT(count_applying(&jemalloc, MEMSCOPE_ROWS_OF_JEMALLOC) == 9);
    EXPECT(count_applying(&jemalloc, MEMSCOPE_ROWS_OF_MARKED) == 4);
    EXPECT(count_applying(&jemalloc, MEMSCOPE_ROWS_OF_GLIBC) == 0);
    jemalloc.jemalloc_status = MEMSCOPE_UNSUPPORTED; /* without statistics */
    EXPECT(count_applying(&jemalloc, MEMSCOPE_ROWS_OF_JEMALLOC) == 0);
}

/* If a row has fewer bytes than its garbage, all of it is garbage: other threads ran before the marking. */
static void test_garbage_splits_rows(void) {
    struct memscope_ledger ledger = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &ruby_33);
    uint64_t garbage[MEMSCOPE_ROW_COUNT] = {0};

    ledger.walked_chunks = true;
    ledger.bytes[MEMSCOPE_ROW_live_slots] = 1000;
    ledger.bytes[MEMSCOPE_ROW_main_heap_in_use] = 500;
    ledger.bytes[MEMSCOPE_ROW_mmapped_in_use] = 70;
    garbage[MEMSCOPE_ROW_live_slots] = 400;
    garbage[MEMSCOPE_ROW_main_heap_in_use] = 501;
    memscope_ledger_split_garbage(&ledger, garbage);
    EXPECT(ledger.bytes[MEMSCOPE_ROW_live_slots_garbage] == 400);
    EXPECT(ledger.bytes[MEMSCOPE_ROW_live_slots_reachable] == 600);
    EXPECT(ledger.bytes[MEMSCOPE_ROW_main_heap_garbage] == 500 && ledger.bytes[MEMSCOPE_ROW_main_heap_reachable] == 0);
    EXPECT(ledger.bytes[MEMSCOPE_ROW_mmapped_garbage] == 0 && ledger.bytes[MEMSCOPE_ROW_mmapped_reachable] == 70);
    EXPECT(memscope_ledger_row_bytes(&ledger, MEMSCOPE_ROW_ruby_heap) == 1000);
    EXPECT(memscope_ledger_row_bytes(&ledger, MEMSCOPE_ROW_malloc) == 570);
}

static void test_rows_of_each_ruby(void) {
    struct memscope_ledger ledger = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &ruby_33);

    EXPECT(memscope_ledger_row_applies(&ledger, MEMSCOPE_ROW_shape_tables));
    EXPECT(!memscope_ledger_row_applies(&ledger, MEMSCOPE_ROW_transient_heap));
    EXPECT(memscope_ledger_row_applies(&ledger, MEMSCOPE_ROW_live_slots));
    EXPECT(!memscope_ledger_row_applies(&ledger, MEMSCOPE_ROW_whole_pages));
    ledger = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &ruby_31);
    EXPECT(!memscope_ledger_row_applies(&ledger, MEMSCOPE_ROW_shape_tables));
    EXPECT(memscope_ledger_row_applies(&ledger, MEMSCOPE_ROW_transient_heap));
    EXPECT(!memscope_ledger_row_applies(&ledger, MEMSCOPE_ROW_live_slots));
    EXPECT(memscope_ledger_row_applies(&ledger, MEMSCOPE_ROW_whole_pages));
}

static void test_shared_parts(void) {
    struct memscope_ledger ledger = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &ruby_33);

    EXPECT(memscope_ledger_row_shares_known(&ledger, MEMSCOPE_ROW_main_heap));
    EXPECT(!memscope_ledger_row_shares_known(&ledger, MEMSCOPE_ROW_main_heap_free));
    EXPECT(!memscope_ledger_row_shares_known(&ledger, MEMSCOPE_ROW_dirty));
    ledger.shared_status = MEMSCOPE_DENIED;
    EXPECT(!memscope_ledger_row_shares_known(&ledger, MEMSCOPE_ROW_main_heap));
}

static void expect_check(const struct memscope_ledger *ledger, enum memscope_row row, const char *source,
                         uint64_t expected, uint64_t actual) {
    struct memscope_row_check check;

    EXPECT(memscope_ledger_row_check(ledger, row, &check));
    EXPECT(strcmp(check.source, source) == 0);
    EXPECT(check.expected_bytes == expected && check.actual_bytes == actual);
}

static void test_checks(void) {
    struct memscope_ledger ledger = ledger_of(MEMSCOPE_ALLOCATOR_JEMALLOC, &ruby_33);
    struct memscope_row_check check;

    ledger.jemalloc.mapped_bytes = 3000;
    ledger.jemalloc.retained_bytes = 500;
    ledger.jemalloc_space_bytes = 4000;
    ledger.ruby.empty_pages_found = 9;
    expect_check(&ledger, MEMSCOPE_ROW_malloc, "jemalloc stats.mapped + stats.retained", 3500, 4000);
    expect_check(&ledger, MEMSCOPE_ROW_ruby_heap, "GC.stat heap_allocated_pages", 100 * 65536, 99 * 65536);
    expect_check(&ledger, MEMSCOPE_ROW_empty_pages, "GC.stat empty pages", 10 * 65536, 9 * 65536);
    EXPECT(!memscope_ledger_row_check(&ledger, MEMSCOPE_ROW_live_slots, &check));
    ledger = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &beside_ractors);
    ledger.ruby.whole_pages_found = 98;
    expect_check(&ledger, MEMSCOPE_ROW_ruby_heap, "GC.stat heap_allocated_pages", 100 * 65536, 98 * 65536);
    ledger = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &ruby_31); /* a layout without pages */
    EXPECT(!memscope_ledger_row_check(&ledger, MEMSCOPE_ROW_malloc, &check));
    EXPECT(!memscope_ledger_row_check(&ledger, MEMSCOPE_ROW_ruby_heap, &check));
}

static void test_malloc_in_use(void) {
    struct memscope_ledger ledger = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &ruby_33);
    uint64_t bytes;

    ledger.main_heap.in_use.bytes = 100;
    ledger.arenas.in_use.bytes = 20;
    ledger.glibc.mmapped_bytes = 3;
    ledger.main_heap.trimmable_bytes = 40;
    ledger.arenas.trimmable_bytes = 2;
    EXPECT(!memscope_ledger_malloc_in_use(&ledger, &bytes) && !memscope_ledger_trimmable(&ledger, &bytes));
    ledger.walked_chunks = true;
    EXPECT(memscope_ledger_malloc_in_use(&ledger, &bytes) && bytes == 123);
    EXPECT(memscope_ledger_trimmable(&ledger, &bytes) && bytes == 42);
    ledger.arenas.incomplete = true;
    EXPECT(!memscope_ledger_malloc_in_use(&ledger, &bytes) && !memscope_ledger_trimmable(&ledger, &bytes));
    ledger = ledger_of(MEMSCOPE_ALLOCATOR_JEMALLOC, &ruby_33);
    ledger.jemalloc.allocated_bytes = 1000;
    ledger.jemalloc.tcache_bytes = 100;
    ledger.jemalloc.tcache_stashed_bytes = 10;
    EXPECT(memscope_ledger_malloc_in_use(&ledger, &bytes) && bytes == 890);
}

static void test_chunks_of_rows(void) {
    struct memscope_ledger ledger = ledger_of(MEMSCOPE_ALLOCATOR_GLIBC, &ruby_33);

    EXPECT(memscope_ledger_row_chunks(&ledger, MEMSCOPE_ROW_arenas_top) == NULL);
    ledger.walked_chunks = true;
    EXPECT(memscope_ledger_row_chunks(&ledger, MEMSCOPE_ROW_main_heap_free) == &ledger.main_heap.free);
    EXPECT(memscope_ledger_row_chunks(&ledger, MEMSCOPE_ROW_arenas_thread_caches) == &ledger.arenas.cached);
    EXPECT(memscope_ledger_row_chunks(&ledger, MEMSCOPE_ROW_arenas_top) == &ledger.arenas.top);
    EXPECT(memscope_ledger_row_chunks(&ledger, MEMSCOPE_ROW_arenas_unwalked) == NULL);
}

int main(void) {
    test_rows_of_each_allocator();
    test_garbage_splits_rows();
    test_rows_of_each_ruby();
    test_shared_parts();
    test_checks();
    test_malloc_in_use();
    test_chunks_of_rows();
    return 0;
}
