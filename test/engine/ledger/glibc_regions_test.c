/* Arenas whose heaps grow, and blocks that grow, after the mappings were read. */
#include "../expect.h"
#include "ledger/glibc_regions.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)

#define MIB ((size_t)1 << 20)
#define BLOCKS 2000
#define BLOCK_BYTES 10000 /* of all blocks, 20 MB: less than a heap can hold */

static pthread_barrier_t grown;
static char *blocks[BLOCKS];

static void allocate(size_t from, size_t to) {
    for (size_t index = from; index < to; index++) {
        blocks[index] = malloc(BLOCK_BYTES);
        EXPECT(blocks[index] != NULL);
        memset(blocks[index], 1, BLOCK_BYTES);
    }
}

/* Nothing of this thread is in the main arena. */
static void *grow_twice(void *unused) {
    allocate(0, BLOCKS / 10);
    pthread_barrier_wait(&grown);
    pthread_barrier_wait(&grown); /* until the mappings are read */
    allocate(BLOCKS / 10, BLOCKS);
    pthread_barrier_wait(&grown);
    pthread_barrier_wait(&grown);
    return unused;
}

static bool is_claimed(const struct memscope_claims *claims, const char *block, enum memscope_row row) {
    size_t index = memscope_claims_position(claims, (uintptr_t)block);

    return index < claims->count && claims->list[index].start <= (uintptr_t)block && claims->list[index].row == row;
}

static struct memscope_scratch list, names, claims_list;
static const struct memscope_mappings_memory memory = {&list, &names};
static struct memscope_own_memory own;

static void read_mappings(struct memscope_mappings *mappings) {
    list.used = names.used = claims_list.used = 0;
    EXPECT(memscope_mappings_read(false, &memory, mappings) == MEMSCOPE_OK);
}

/* Finds the heap of blocks[0], with the residency or, beside jemalloc, before it is read. */
static void check_heap(const struct memscope_mappings *mappings, const struct memscope_residency *residency,
                       enum memscope_row row) {
    struct memscope_glibc_regions regions = {0};
    struct memscope_claims claims;
    const struct memscope_search search = {mappings, residency, &own, &claims};

    claims_list.used = 0;
    memscope_claims_open(&claims, &claims_list, &list);
    memscope_glibc_claim_arenas(&search, row, &regions);
    memscope_claims_settle(&claims);
    EXPECT(regions.arena_heap_count == 1 && regions.arena_count == 1);
    EXPECT(is_claimed(&claims, blocks[0], row));
    EXPECT(is_claimed(&claims, blocks[BLOCKS - 1], row));
}

static void check_heaps_that_grow(void) {
    struct memscope_residency residency;
    struct memscope_mappings mappings;
    pthread_t thread;

    EXPECT(pthread_barrier_init(&grown, NULL, 2) == 0 && pthread_create(&thread, NULL, grow_twice, NULL) == 0);
    pthread_barrier_wait(&grown);
    read_mappings(&mappings);
    pthread_barrier_wait(&grown);
    pthread_barrier_wait(&grown);
    EXPECT(memscope_residency_read(&mappings, &memory, &residency) == MEMSCOPE_OK);
    check_heap(&mappings, &residency, MEMSCOPE_ROW_arenas);
    check_heap(&mappings, NULL, MEMSCOPE_ROW_unattributed);
    pthread_barrier_wait(&grown);
    EXPECT(pthread_join(thread, NULL) == 0);
}

/* The kernel puts the second block right below the first; once that is freed, mremap extends the second in place. */
static void check_a_block_that_grows(void) {
    char *above = malloc(64 * MIB), *block = malloc(8 * MIB), *extended;
    struct memscope_glibc_regions regions = {0};
    struct memscope_residency residency;
    struct memscope_mappings mappings;
    struct memscope_claims claims;
    const struct memscope_search search = {&mappings, &residency, &own, &claims};

    EXPECT(above > block);
    free(above);
    memset(block, 1, 8 * MIB);
    read_mappings(&mappings);
    extended = realloc(block, 16 * MIB);
    EXPECT(extended == block);
    EXPECT(memscope_residency_read(&mappings, &memory, &residency) == MEMSCOPE_OK);
    memscope_claims_open(&claims, &claims_list, &list);
    memscope_glibc_claim_mmapped(&search, MEMSCOPE_ROW_mmapped, &regions);
    memscope_claims_settle(&claims);
    EXPECT(is_claimed(&claims, extended, MEMSCOPE_ROW_mmapped));
    EXPECT(is_claimed(&claims, extended + 8 * MIB - 1, MEMSCOPE_ROW_mmapped));
    EXPECT(regions.mmapped_bytes >= 16 * MIB);
    free(extended);
}

int main(void) {
    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&names) == MEMSCOPE_OK);
    EXPECT(memscope_scratch_open(&claims_list) == MEMSCOPE_OK && memscope_own_memory_open(&own) == MEMSCOPE_OK);
    check_a_block_that_grows();
    check_heaps_that_grow();
    return 0;
}

#else

int main(void) {
    SKIP("glibc does not serve malloc here");
}

#endif
