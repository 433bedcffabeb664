/*
 * What threads leave behind when they end: glibc moves their cached chunks to the fastbins, and does not erase the key
 * that marks a cached chunk.
 */
#include "../expect.h"
#include "kernel/process.h"
#include "ledger/ledger.h"
#include "ledger/malloc_blocks.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)

#define THREADS 64
#define SIZES 7 /* of chunks in fastbins: 32 to 128 bytes */
#define CACHED 7
#define LEFT ((uint64_t)THREADS * CACHED * SIZES * 80) /* bytes */
#define SLACK ((uint64_t)64 << 10)

static const struct memscope_ruby_layout no_ruby;
static struct memscope_scratch scratch;
static struct memscope_images images;
static struct memscope_ledger_request request = {
    .malloc = MEMSCOPE_ALLOCATOR_GLIBC, .ruby = &no_ruby, .images = &images, .deep = true};
static pthread_barrier_t all_live;

/* Leaves the small chunks between two free ones; none of these chunks fills a page alone. */
static void *live_and_end(void *kept) {
    void *volatile before = malloc(2000), *volatile after; /* volatile: else the compiler drops both */
    char *small[SIZES * CACHED];
    int count = 0;

    for (size_t size = 24; size <= 120; size += 16)
        for (int index = 0; index < CACHED; index++)
            small[count++] = memset(malloc(size), 1, size);
    after = malloc(2000);
    memset(before, 1, 2000);
    memset(after, 1, 2000);
    *(void **)kept = malloc(2000);
    pthread_barrier_wait(&all_live);
    free(before);
    free(after);
    while (count > 0)
        free(small[--count]);
    pthread_barrier_wait(&all_live);
    return NULL;
}

static void run_threads(void) {
    static pthread_t threads[THREADS];
    static void *kept[THREADS];

    EXPECT(pthread_barrier_init(&all_live, NULL, THREADS) == 0);
    for (int index = 0; index < THREADS; index++)
        EXPECT(pthread_create(&threads[index], NULL, live_and_end, &kept[index]) == 0);
    for (int index = 0; index < THREADS; index++)
        EXPECT(pthread_join(threads[index], NULL) == 0);
}

static void read_ledger(struct memscope_ledger *ledger) {
    EXPECT(memscope_ledger_read(&request, ledger) == MEMSCOPE_OK);
    EXPECT(ledger->walked_chunks);
}

static uint64_t cached_bytes(void) {
    struct memscope_ledger ledger;
    uint64_t bytes;

    read_ledger(&ledger);
    bytes = ledger.main_heap.cached.bytes + ledger.arenas.cached.bytes;
    memscope_ledger_close(&ledger);
    return bytes;
}

/* By smaps_rollup: the kernel's count in statm lags behind by up to 64 pages. */
static uint64_t resident(void) {
    struct memscope_process_memory memory;

    EXPECT(memscope_process_memory_read("self", &memory) == MEMSCOPE_OK);
    return memory.figures.rss_bytes;
}

int main(void) {
    struct memscope_blocks_returned forecast;
    struct memscope_malloc_blocks blocks;
    struct memscope_ledger ledger;
    uint64_t cached, before, returned;

    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    memscope_images_read(&scratch, &images);
    memscope_glibc_learn_cache_key();
    EXPECT(memscope_glibc_knows_cache_key());
    cached = cached_bytes();
    run_threads();
    if (mallinfo2().fsmblks < LEFT - SLACK)
        SKIP("this glibc has no fastbins");
    EXPECT(cached_bytes() < cached + SLACK);
    read_ledger(&ledger);
    EXPECT(memscope_malloc_blocks_open(&blocks, &ledger) == MEMSCOPE_OK);
    EXPECT(memscope_malloc_blocks_returned(&blocks, &forecast) == MEMSCOPE_OK);
    before = resident();
    malloc_trim(0);
    returned = before - resident();
    EXPECT(returned >= LEFT / 2);
    EXPECT(forecast.today.most + SLACK >= returned);
    memscope_malloc_blocks_close(&blocks);
    memscope_ledger_close(&ledger);
    memscope_scratch_close(&scratch);
    return 0;
}

#else

int main(void) {
    SKIP("glibc does not serve malloc here");
}

#endif
