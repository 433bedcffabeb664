/* The chunk walk against glibc's own counts, mallinfo2 and malloc_info, and against what malloc_trim returns. */
#include "../expect.h"
#include "kernel/process.h"
#include "ledger/glibc_chunks.h"
#include "ledger/glibc_pieces.h"

#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)

#define SLACK ((int64_t)64 * 1024)
#ifdef IN_FULL
#define BLOCKS 200000
#else
#define BLOCKS 60000
#endif

static struct memscope_scratch list, names;
static unsigned seed = 4711;

static unsigned next_random(unsigned below) {
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % below;
}

static struct memscope_chunk_totals main_heap, arenas;

static void walk_everything(void) {
    const struct memscope_mappings_memory memory = {&list, &names};
    struct memscope_scratch claims_list;
    struct memscope_mappings mappings;
    struct memscope_residency residency;
    struct memscope_own_memory own;
    struct memscope_claims claims;
    struct memscope_glibc_regions regions = {0};
    struct memscope_chunk_walk walk;
    struct memscope_images images;
    const struct memscope_search search = {&mappings, &residency, &own, &claims};

    memset(&main_heap, 0, sizeof main_heap);
    memset(&arenas, 0, sizeof arenas);
    list.used = names.used = 0;
    EXPECT(memscope_scratch_open(&claims_list) == MEMSCOPE_OK);
    EXPECT(memscope_mappings_read(false, &memory, &mappings) == MEMSCOPE_OK);
    EXPECT(memscope_residency_read(&mappings, &memory, &residency) == MEMSCOPE_OK);
    EXPECT(memscope_own_memory_open(&own) == MEMSCOPE_OK);
    memscope_images_read(&list, &images);
    memscope_claims_open(&claims, &claims_list, &list);
    memscope_glibc_claim_arenas(&search, MEMSCOPE_ROW_arenas, &regions);
    memscope_claims_settle(&claims);
    EXPECT(memscope_chunk_walk_open(&walk, &own, &residency, &list));
    memscope_chunk_walk_begin(&walk);
    memscope_chunk_walk_add_fast_chunks(&walk, memscope_glibc_main_top(&own, &images));
    for (size_t index = 0; index < claims.count; index++)
        memscope_chunk_walk_add_arena_fast_chunks(&walk, claims.list[index].start);
    memscope_chunk_walk_sort_fast_chunks(&walk);
    for (size_t index = 0; index < mappings.count; index++)
        if (memscope_mapping_is_program_break(&mappings.list[index]))
            memscope_chunk_walk_main_heap(&walk, mappings.list[index].start, (uintptr_t)sbrk(0), &main_heap);
    for (size_t index = 0; index < claims.count; index++)
        memscope_chunk_walk_arena_heap(&walk, claims.list[index].start, &arenas);
    memscope_own_memory_close(&own);
    memscope_scratch_close(&claims_list);
}

static void expect_near(uint64_t seen, uint64_t expected) {
    int64_t difference = (int64_t)(seen - expected);

    if (difference < -SLACK || difference > SLACK)
        fprintf(stderr, "seen %llu, expected %llu\n", (unsigned long long)seen, (unsigned long long)expected);
    EXPECT(difference >= -SLACK && difference <= SLACK);
}

static uint64_t sum(uint64_t main_bytes, uint64_t arena_bytes) {
    return main_bytes + arena_bytes;
}

/* uordblks counts cached chunks, heap_info and malloc_state as in use; fordblks counts the tops as free. */
static void check_against_mallinfo2(void) {
    struct mallinfo2 info;

    walk_everything();
    info = mallinfo2();
    EXPECT(main_heap.unwalked_bytes == 0 && arenas.unwalked_bytes == 0);
    EXPECT(!main_heap.incomplete && !arenas.incomplete);
    expect_near(sum(main_heap.free.bytes, arenas.free.bytes) + sum(main_heap.top.bytes, arenas.top.bytes),
                info.fordblks);
    expect_near(sum(main_heap.in_use.bytes, arenas.in_use.bytes) + sum(main_heap.cached.bytes, arenas.cached.bytes) +
                    arenas.arena.bytes,
                info.uordblks);
    expect_near(main_heap.top.bytes, info.keepcost);
}

static void *fragment(void *argument) {
    static __thread char *blocks[BLOCKS];

    for (int index = 0; index < BLOCKS; index++) {
        size_t size = next_random(index % 100 == 0 ? 60000 : 900) + 1;

        blocks[index] = memset(malloc(size), 1, size);
    }
    for (int index = 0; index < BLOCKS; index++)
        if (next_random(100) < 90)
            free(blocks[index]);
    return argument;
}

/* Frees blocks into the fastbins: malloc_trim merges them with adjacent free chunks. */
static void *fragment_finely(void *argument) {
    static __thread char *blocks[BLOCKS];

    for (int index = 0; index < BLOCKS; index++)
        blocks[index] = memset(malloc(100), 1, 100);
    for (int index = 0; index < BLOCKS; index++)
        if (next_random(100) < 99)
            free(blocks[index]);
    return argument;
}

static uint64_t resident(void) {
    struct memscope_statm statm;

    EXPECT(memscope_statm_read(&statm) == MEMSCOPE_OK);
    return statm.resident_bytes;
}

static void check_trim_forecast(void) {
    uint64_t predicted, before, returned;

    walk_everything();
    predicted = main_heap.trimmable_bytes + arenas.trimmable_bytes;
    before = resident();
    malloc_trim(0);
    returned = before - resident();
    EXPECT(predicted > (uint64_t)16 << 20);
    EXPECT(predicted >= returned - returned / 33 && predicted <= returned + returned / 33);
}

/* The part of an arena that the walk reads (malloc/malloc.c), and the chunks of its only heap, two of them fast. */
struct made_up_heap {
    struct memscope_glibc_heap_info info;
    struct {
        uintptr_t flags[2], fastbins[10], top;
    } state;
    char rest[2048 - sizeof(struct memscope_glibc_heap_info) - 13 * sizeof(uintptr_t)]; /* of malloc_state */
    struct {
        uintptr_t previous_size, size, next, rest;
    } fast[2], top;
};

static void open_walk(struct memscope_chunk_walk *walk, struct memscope_own_memory *own,
                      const struct memscope_residency *residency) {
    list.used = 0;
    EXPECT(memscope_own_memory_open(own) == MEMSCOPE_OK);
    EXPECT(memscope_chunk_walk_open(walk, own, residency, &list));
}

/*
 * The fast chunks' list ends, or leads in a circle, as when another thread changes it meanwhile; or there is no room to
 * sort them: they count as in use then, and the heap as not walked in full.
 */
static void check_fast_chunks(bool circle, bool without_room) {
    static struct made_up_heap heap __attribute__((aligned(4096)));
    const struct memscope_range range = {(uintptr_t)&heap, (uintptr_t)(&heap + 1)};
    const struct memscope_residency residency = {.ranges = &range, .range_count = 1};
    struct memscope_chunk_totals totals = {0};
    struct memscope_own_memory own;
    struct memscope_chunk_walk walk;
    uintptr_t last = circle ? (uintptr_t)&heap.fast[1] : 0;
    size_t reserved = list.reserved;

    heap.info = (struct memscope_glibc_heap_info){.arena = (uintptr_t)&heap.state, .size = sizeof heap};
    heap.state.fastbins[0] = (uintptr_t)&heap.fast[1];
    heap.state.top = (uintptr_t)&heap.top;
    for (int index = 0; index < 2; index++)
        heap.fast[index].size = sizeof heap.fast[index] | 1;
    heap.fast[1].next = (uintptr_t)&heap.fast[1].next >> 12 ^ (uintptr_t)&heap.fast[0]; /* PROTECT_PTR */
    heap.fast[0].next = (uintptr_t)&heap.fast[0].next >> 12 ^ last;
    heap.top.size = sizeof heap.top | 1;
    open_walk(&walk, &own, &residency);
    memscope_chunk_walk_begin(&walk);
    alarm(10); /* kills a search that does not end */
    memscope_chunk_walk_add_arena_fast_chunks(&walk, (uintptr_t)&heap);
    EXPECT(walk.fast_count >= 2 && walk.fast_count < 6);
    if (without_room)
        list.reserved = list.used;
    memscope_chunk_walk_sort_fast_chunks(&walk);
    list.reserved = reserved;
    memscope_chunk_walk_arena_heap(&walk, (uintptr_t)&heap, &totals);
    alarm(0);
    memscope_own_memory_close(&own);
    EXPECT(totals.incomplete == without_room);
    if (without_room)
        return;
    EXPECT(totals.free.count == 2 && totals.free.bytes == 64 && totals.in_use.count == 0 && totals.top.count == 1);
    EXPECT(totals.trimmable_bytes == 0);
}

/* The heap that was found is unmapped by now, and zeros, or other memory, are mapped in its place. */
static void check_a_heap_that_is_gone(void) {
    static struct made_up_heap heap __attribute__((aligned(4096)));
    const struct memscope_range range = {(uintptr_t)&heap, (uintptr_t)(&heap + 1)};
    const struct memscope_residency residency = {.ranges = &range, .range_count = 1};
    struct memscope_own_memory own;
    struct memscope_chunk_walk walk;

    alarm(10);
    for (int content = 0; content < 2; content++) {
        struct memscope_chunk_totals totals = {0};

        memset(&heap, content == 0 ? 0 : 0x5a, sizeof heap);
        open_walk(&walk, &own, &residency);
        memscope_chunk_walk_arena_heap(&walk, (uintptr_t)&heap, &totals);
        EXPECT(totals.incomplete && totals.unwalked_bytes == 0 && totals.in_use.count == 0);
        memscope_own_memory_close(&own);
    }
    alarm(0);
}

/* However large its steps are, the walk's copies stay within their room: what was taken next keeps its content. */
static void check_copies_stay_within_their_room(void) {
    enum { MEMORY = 512 << 10, NEXT = 4096 };
    static char memory[MEMORY] __attribute__((aligned(4096))), expected[NEXT];
    const struct memscope_range range = {(uintptr_t)memory, (uintptr_t)memory + MEMORY};
    const struct memscope_residency residency = {.ranges = &range, .range_count = 1};
    struct memscope_own_memory own;
    struct memscope_chunk_walk walk;
    uintptr_t word;
    char *next;

    memset(memory, 'x', sizeof memory);
    open_walk(&walk, &own, &residency);
    next = memscope_scratch_take(&list, NEXT);
    memcpy(next, expected, NEXT);
    for (int round = 0; round < 100; round++)
        for (size_t at = next_random(256) * 16; at + sizeof word <= MEMORY; at += 16 * (1 + next_random(255)))
            EXPECT(memscope_chunk_walk_word(&walk, (uintptr_t)memory + at, &word));
    EXPECT(memcmp(next, expected, NEXT) == 0);
    memscope_own_memory_close(&own);
}

/* As if the page were swapped out. */
static void walk_without_page(uintptr_t page) {
    EXPECT(mprotect((void *)page, 4096, PROT_NONE) == 0);
    walk_everything();
    EXPECT(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) == 0);
}

static void check_unreadable_pages(void) {
    char *blocks[200];

    for (int index = 0; index < 200; index++)
        blocks[index] = malloc(100);
    walk_without_page(((uintptr_t)blocks[100] + 4095) & -(uintptr_t)4096);
    EXPECT(main_heap.incomplete && main_heap.unwalked_bytes > 0);
    for (int index = 0; index < 200; index++)
        free(blocks[index]);
    check_against_mallinfo2();
}

/* A heap of three chunks, a page each. */
static struct {
    uintptr_t previous_size, size;
    char content[4096 - 2 * sizeof(uintptr_t)];
} pages[3] __attribute__((aligned(4096)));

/* The first page of a heap, and with it its first chunk, is not resident: the walk begins at the second page. */
static void check_a_heap_without_its_start(void) {
    const struct memscope_range range = {(uintptr_t)&pages[1], (uintptr_t)&pages[3]};
    const struct memscope_residency residency = {.ranges = &range, .range_count = 1};
    struct memscope_chunk_totals totals = {0};
    struct memscope_own_memory own;
    struct memscope_chunk_walk walk;

    for (int page = 1; page < 3; page++)
        pages[page].size = sizeof pages[page] | 1;
    EXPECT(madvise(&pages[0], sizeof pages[0], MADV_DONTNEED) == 0);
    open_walk(&walk, &own, &residency);
    memscope_chunk_walk_main_heap(&walk, (uintptr_t)pages, (uintptr_t)&pages[3], &totals);
    EXPECT(totals.in_use.count == 1 && totals.top.count == 1 && totals.unwalked_bytes == 4096);
    EXPECT(totals.incomplete);
    memscope_own_memory_close(&own);
}

/* All but a heap's first page have become resident since residency was read: walked, but none of the resident bytes. */
static void check_pages_that_are_resident_by_now(void) {
    const struct memscope_range range = {(uintptr_t)&pages[0], (uintptr_t)&pages[1]};
    const struct memscope_residency residency = {.ranges = &range, .range_count = 1};
    struct memscope_chunk_totals totals = {0};
    struct memscope_own_memory own;
    struct memscope_chunk_walk walk;

    for (int page = 0; page < 3; page++)
        pages[page].size = sizeof pages[page] | 1;
    open_walk(&walk, &own, &residency);
    memscope_chunk_walk_piece(&walk, (uintptr_t)pages, (uintptr_t)&pages[3], &totals);
    EXPECT(totals.in_use.bytes == 2 * 4096 && totals.in_use.resident_bytes == 4096);
    EXPECT(totals.top.bytes == 4096 && totals.top.resident_bytes == 0 && !totals.incomplete);
    memscope_own_memory_close(&own);
}

static void in_threads(void *(*work)(void *)) {
    pthread_t threads[3];

    for (int index = 0; index < 3; index++)
        EXPECT(pthread_create(&threads[index], NULL, work, NULL) == 0);
    for (int index = 0; index < 3; index++)
        EXPECT(pthread_join(threads[index], NULL) == 0);
}

/*
 * Leaves more free blocks of this size in the arena than the thread's cache takes, and the cache full or, if so wanted,
 * empty: then the next malloc of the size fills it.
 */
static void free_many_of(size_t size, bool empty) {
    enum { CACHED = 7, FREED = 4 * CACHED };
    void *volatile blocks[FREED], *volatile apart[FREED];

    for (int index = 0; index < FREED; index++) {
        blocks[index] = malloc(size);
        apart[index] = malloc(size + 256);
    }
    for (int index = 0; index < FREED; index++)
        free(blocks[index]);
    apart[0] = malloc(2000); /* too large for the unsorted chunks, so it sorts them into their bins */
    for (int index = 0; empty && index < CACHED; index++)
        blocks[index] = malloc(size);
    EXPECT(apart[0] != NULL && blocks[0] != NULL);
}

static void refill_the_cache(void) {
    free_many_of(24, true);
    free_many_of(120, true);
    free_many_of(504, true);
}

/* No chunk of the smallest size is left, and malloc takes larger ones, of which the cache is full. */
static void take_larger_chunks(void) {
    void *volatile block;

    free_many_of(40, false);
    do
        block = malloc(24);
    while (malloc_usable_size(block) == 24);
}

static void expect_the_key_after(void (*prepare)(void)) {
    pid_t child = fork();
    int status;

    if (child == 0) {
        prepare();
        memscope_glibc_learn_cache_key();
        _exit(memscope_glibc_knows_cache_key() ? 0 : 1);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&names) == MEMSCOPE_OK);

    expect_the_key_after(refill_the_cache);
    expect_the_key_after(take_larger_chunks);
    memscope_glibc_learn_cache_key();
    EXPECT(memscope_glibc_knows_cache_key());
    check_fast_chunks(false, false);
    check_fast_chunks(true, false);
    check_fast_chunks(false, true);
    check_a_heap_that_is_gone();
    check_copies_stay_within_their_room();
    check_a_heap_without_its_start();
    check_pages_that_are_resident_by_now();
    check_against_mallinfo2();
    check_unreadable_pages();
    fragment_finely(NULL);
    in_threads(fragment_finely);
    check_against_mallinfo2();
    check_trim_forecast();
    fragment(NULL);
    check_against_mallinfo2();
    EXPECT(main_heap.cached.count > 0);
    in_threads(fragment);
    check_against_mallinfo2();
    EXPECT(arenas.in_use.count > 0 && arenas.free.count > 0);
    check_trim_forecast();
    check_against_mallinfo2();
    return 0;
}

#else

int main(void) {
    SKIP("glibc does not serve malloc here");
}

#endif
