/* The pieces of the main arena once the program break cannot be raised, against glibc's own totals. */
#include "../expect.h"
#include "ledger/glibc_chunks.h"
#include "ledger/glibc_pieces.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)

#define BLOCKS 20000

static struct memscope_scratch list, names, claimed;
static struct memscope_claims claims;
static struct memscope_glibc_regions regions;
static struct memscope_chunk_totals totals;

/* Claims the pieces and walks them; totals then also holds what malloc_trim would return. */
static void look(void) {
    const struct memscope_mappings_memory memory = {&list, &names};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct memscope_mappings mappings;
    struct memscope_residency residency;
    struct memscope_own_memory own;
    struct memscope_images images;
    const struct memscope_search search = {&mappings, &residency, &own, &claims};
    struct memscope_chunk_walk walk;

    list.used = names.used = claimed.used = 0;
    regions = (struct memscope_glibc_regions){0};
    totals = (struct memscope_chunk_totals){0};
    EXPECT(memscope_mappings_read(false, &memory, &mappings) == MEMSCOPE_OK);
    EXPECT(memscope_residency_read(&mappings, &memory, &residency) == MEMSCOPE_OK);
    EXPECT(memscope_own_memory_open(&own) == MEMSCOPE_OK);
    memscope_images_read(&list, &images);
    memscope_claims_open(&claims, &claimed, &list);
    memscope_glibc_claim_pieces(&search, &images, &list, &regions);
    memscope_claims_settle(&claims);
    EXPECT(memscope_chunk_walk_open(&walk, &own, &residency, &list));
    memscope_chunk_walk_begin(&walk);
    memscope_chunk_walk_add_fast_chunks(&walk, memscope_glibc_main_top(&own, &images));
    memscope_chunk_walk_sort_fast_chunks(&walk);
    for (size_t index = 0; index < claims.count; index++) {
        const struct memscope_claim *claim = &claims.list[index];

        memscope_chunk_walk_piece(&walk, claim->start, claim->start + claim->item * page, &totals);
    }
    memscope_own_memory_close(&own);
}

static uint64_t claimed_bytes(void) {
    uint64_t bytes = 0;

    for (size_t index = 0; index < claims.count; index++) {
        EXPECT(claims.list[index].row == MEMSCOPE_ROW_main_heap);
        bytes += claims.list[index].end - claims.list[index].start;
    }
    return bytes;
}

/* Keeps the break from rising, as a static mapping near the heap or an exhausted range does. */
static void block_the_break(void) {
    char *next = (char *)(((uintptr_t)sbrk(0) + 4095) & ~(uintptr_t)4095);

    EXPECT(mmap(next, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == next);
}

int main(void) {
    static char *blocks[BLOCKS];
    struct mallinfo2 before, after;

    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&names) == MEMSCOPE_OK &&
           memscope_scratch_open(&claimed) == MEMSCOPE_OK);
    blocks[0] = malloc(100000);
    free(blocks[0]);
    look();
    EXPECT(claims.count == 0);
    block_the_break();
    before = mallinfo2();
    EXPECT(before.arena > 0);
    for (int index = 0; index < BLOCKS; index++)
        blocks[index] = memset(malloc(1000 + index % 7 * 16), 1, 1000);
    look();
    EXPECT(regions.main_piece_count > 0 && claimed_bytes() == mallinfo2().arena - before.arena);
    for (int index = 0; index < BLOCKS; index++)
        if (index % 60 != 0)
            free(blocks[index]);
    look();
    after = mallinfo2();
    EXPECT(claimed_bytes() == after.arena - before.arena);
    EXPECT(totals.top.count == 1 && totals.top.bytes == after.keepcost && totals.unwalked_bytes == 0);
    EXPECT(totals.in_use.bytes <= after.uordblks && totals.in_use.bytes + before.arena >= after.uordblks);
    EXPECT(totals.free.bytes + totals.top.bytes <= after.fordblks &&
           totals.free.bytes + totals.top.bytes + before.arena >= after.fordblks);
    EXPECT(totals.trimmable_bytes > (uint64_t)16 << 20);
    return 0;
}

#else

int main(void) {
    SKIP("glibc does not serve malloc here");
}

#endif
