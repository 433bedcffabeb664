#include "../expect.h"
#include "ledger/ruby_regions.h"
#include "ledger/stacks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The sizes of the shape tables do not matter: only their placement is tested. */
#define PAGE ((size_t)4096)
#define LIST (5 * PAGE)
#define CACHE (9 * PAGE)
#define SHAPE_BYTES 40

struct world {
    struct memscope_scratch list_memory, sort_memory;
    struct memscope_claims claims;
    struct memscope_own_memory memory;
    struct memscope_mapping list[4];
    struct memscope_mappings mappings;
    struct memscope_search search;
    struct memscope_ruby_layout layout;
};

static bool open_world(struct world *world) {
    memset(world, 0, sizeof *world);
    if (memscope_own_memory_open(&world->memory) != MEMSCOPE_OK)
        return false;
    EXPECT(memscope_scratch_open(&world->list_memory) == MEMSCOPE_OK);
    EXPECT(memscope_scratch_open(&world->sort_memory) == MEMSCOPE_OK);
    memscope_claims_open(&world->claims, &world->list_memory, &world->sort_memory);
    world->mappings.list = world->list;
    world->search = (struct memscope_search){&world->mappings, NULL, &world->memory, &world->claims};
    world->layout.shape_list_bytes = LIST;
    world->layout.shape_cache_bytes = CACHE;
    return true;
}

static void close_world(struct world *world) {
    memscope_own_memory_close(&world->memory);
    memscope_scratch_close(&world->list_memory);
    memscope_scratch_close(&world->sort_memory);
}

static uintptr_t map(size_t bytes) {
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT(start != MAP_FAILED);
    return (uintptr_t)start;
}

/* Ascending, as the kernel lists them. */
static void add_mapping(struct world *world, uintptr_t start, uintptr_t end) {
    size_t at = world->mappings.count++;

    for (; at > 0 && world->list[at - 1].start > start; at--)
        world->list[at] = world->list[at - 1];
    world->list[at] =
        (struct memscope_mapping){.start = start, .end = end, .name = "", .readable = true, .writable = true};
}

/* Writes a node: a key, and the shape with a flag in its lowest bit. */
static void write_node(uintptr_t cache, uintptr_t shape) {
    ((uintptr_t *)cache)[0] = 0xa123;
    ((uintptr_t *)cache)[1] = shape | 1;
}

static void claim(struct world *world) {
    struct memscope_ruby_regions regions = {0};

    memscope_ruby_claim_known_internals(&world->layout, &world->search, &regions);
    memscope_claims_settle(&world->claims);
}

/* Bytes claimed for shape tables in [start, end). */
static size_t claimed(const struct world *world, uintptr_t start, uintptr_t end) {
    size_t bytes = 0;

    for (size_t index = 0; index < world->claims.count; index++) {
        const struct memscope_claim *one = &world->claims.list[index];

        if (one->row == MEMSCOPE_ROW_shape_tables && one->start >= start && one->end <= end)
            bytes += one->end - one->start;
    }
    return bytes;
}

static size_t claimed_in_all(const struct world *world) {
    return claimed(world, 0, UINTPTR_MAX);
}

/* The usual placement by the kernel: the list right above the cache, in one mapping. */
static void test_one_mapping(size_t claimed_below, size_t claimed_above) {
    struct world world;
    uintptr_t start, cache;

    if (!open_world(&world))
        return;
    start = map(claimed_below + CACHE + LIST + claimed_above);
    cache = start + claimed_below;
    write_node(cache, cache + CACHE + 9 * SHAPE_BYTES);
    add_mapping(&world, start, cache + CACHE + LIST + claimed_above);
    memscope_claims_add(&world.claims, start, cache, MEMSCOPE_CLAIM_HEAP_PAGE, 0);
    memscope_claims_add(&world.claims, cache + CACHE + LIST, cache + CACHE + LIST + claimed_above,
                        MEMSCOPE_CLAIM_HEAP_PAGE, 1);
    memscope_claims_settle(&world.claims);
    claim(&world);
    EXPECT(claimed(&world, cache, cache + CACHE + LIST) == CACHE + LIST);
    EXPECT(claimed_in_all(&world) == CACHE + LIST);
    close_world(&world);
}

/* If each mapping is named or aligned, the tables are two mappings. */
static void test_two_mappings(uintptr_t shape_offset, size_t list_bytes, bool address_known, size_t expected) {
    struct world world;
    uintptr_t list, cache;

    if (!open_world(&world))
        return;
    cache = map(CACHE);
    list = map(list_bytes);
    write_node(cache, list + shape_offset);
    add_mapping(&world, cache, cache + CACHE);
    add_mapping(&world, list, list + list_bytes);
    world.layout.shape_list = address_known ? list : 0;
    claim(&world);
    EXPECT(claimed_in_all(&world) == expected);
    close_world(&world);
}

/* A mapping of exactly that size, but a program's own. */
static void test_a_stranger(uintptr_t word) {
    struct world world;
    uintptr_t start;

    if (!open_world(&world))
        return;
    start = map(CACHE + LIST);
    ((uintptr_t *)start)[1] = word == 0 ? 0 : start + word;
    add_mapping(&world, start, start + CACHE + LIST);
    claim(&world);
    EXPECT(claimed_in_all(&world) == 0);
    close_world(&world);
}

/* Ruby 3.2 has no cache. */
static void test_a_list_alone(void) {
    struct world world;
    uintptr_t start;

    if (!open_world(&world))
        return;
    start = map(3 * PAGE + LIST);
    add_mapping(&world, start, start + 3 * PAGE + LIST);
    world.layout.shape_list = start + 3 * PAGE;
    world.layout.shape_cache_bytes = 0;
    claim(&world);
    EXPECT(claimed(&world, start + 3 * PAGE, start + 3 * PAGE + LIST) == LIST);
    EXPECT(claimed_in_all(&world) == LIST);
    close_world(&world);
}

#define PAGES ((size_t)6)

/*
 * The word of a descriptor that leads back to its page: since Ruby 3.4 the page's address, before that its first
 * slot's.
 */
#define SLOT_OFFSET 64
#define WORD 3

/*
 * Heap pages whose first word points to a descriptor each, then a block that points to another page's descriptor.
 * led_to: the offset in the page that its descriptor points back to.
 */
static void test_unlisted_pages(size_t led_to, bool listed, size_t expected_whole, size_t expected_empty) {
    static uintptr_t descriptors[PAGES][32];
    struct memscope_ruby_regions regions = {0};
    struct memscope_heap_page known = {.slots_offset = SLOT_OFFSET};
    struct memscope_residency residency = {.source = MEMSCOPE_RESIDENCY_PAGEMAP_SCAN, .range_count = 1};
    struct memscope_range range;
    struct world world;

    if (!open_world(&world))
        return;
    range.start = map((PAGES + 1) * PAGE);
    range.end = range.start + (PAGES + 1) * PAGE;
    add_mapping(&world, range.start, range.end);
    residency.ranges = &range;
    memset(descriptors, 0, sizeof descriptors);
    for (size_t page = 0; page < PAGES; page++) {
        const uint16_t sizes[2] = {40, (PAGE - SLOT_OFFSET) / 40};

        *(uintptr_t *)(range.start + page * PAGE) = (uintptr_t)descriptors[page];
        memcpy(descriptors[page], sizes, sizeof sizes);
        descriptors[page][WORD] = range.start + page * PAGE + led_to;
    }
    *(uintptr_t *)(range.start + PAGES * PAGE) = (uintptr_t)descriptors[0];
    known.start = range.start;
    world.layout.heap_page_bytes = PAGE;
    world.layout.heap_pages = &known;
    world.layout.heap_page_count = listed;
    world.layout.empty_page_count = PAGES;
    for (size_t index = 0; index < MEMSCOPE_LANDMARKS; index++)
        world.layout.landmarks[index] = range.start + index % 2 * PAGE;
    if (listed)
        memscope_ruby_claim_heap_pages(&world.layout, &world.claims);
    memscope_claims_settle(&world.claims);
    world.search.residency = &residency;
    memscope_ruby_claim_unlisted_pages(&world.layout, &world.search, &regions);
    EXPECT(regions.whole_pages_found == expected_whole);
    EXPECT(regions.empty_pages_found == expected_empty);
    close_world(&world);
}

#define STACK_BYTES (32 * PAGE)
#define CHUNK_BYTES ((size_t)512 << 20)
#define CHUNK_HEADER (2 * PAGE)

/* A chunk with room for many threads' stacks; the second stack has a footer that names its chunk and index. */
static void test_stacks_that_migrate(size_t index_said, bool expected) {
    size_t thread_bytes = 2 * STACK_BYTES + PAGE;
    uintptr_t chunk, stack, guard, *footer;
    struct world world;

    if (!open_world(&world))
        return;
    chunk =
        (uintptr_t)mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(chunk != (uintptr_t)MAP_FAILED);
    stack = chunk + CHUNK_HEADER + thread_bytes;
    guard = stack + STACK_BYTES;
    footer = (uintptr_t *)(guard + PAGE + STACK_BYTES) - 2;
    footer[0] = chunk;
    footer[1] = index_said;
    add_mapping(&world, chunk, guard);
    add_mapping(&world, guard, guard + PAGE);
    world.list[1].readable = world.list[1].writable = false;
    add_mapping(&world, guard + PAGE, chunk + CHUNK_BYTES);
    memscope_stacks_claim_migrating(&world.search, STACK_BYTES, STACK_BYTES);
    memscope_claims_settle(&world.claims);
    EXPECT(world.claims.count == expected);
    if (expected)
        EXPECT(world.claims.list[0].row == MEMSCOPE_ROW_threads && world.claims.list[0].start == chunk &&
               world.claims.list[0].end == chunk + CHUNK_BYTES);
    munmap((void *)chunk, CHUNK_BYTES);
    close_world(&world);
}

int main(void) {
    test_one_mapping(0, 0);
    test_one_mapping(2 * PAGE, 0);
    test_one_mapping(PAGE, 3 * PAGE);
    test_two_mappings(9 * SHAPE_BYTES, LIST, false, CACHE + LIST);
    test_two_mappings(9 * SHAPE_BYTES, LIST, true, CACHE + LIST);
    test_two_mappings(9 * SHAPE_BYTES, LIST + PAGE, false, 0);
    test_two_mappings(LIST, LIST, true, LIST); /* not the cache of this list */
    test_a_stranger(0);
    test_a_stranger(PAGE);         /* points into itself */
    test_a_stranger(CACHE + LIST); /* points past its end */
    test_a_list_alone();
    test_unlisted_pages(0, false, PAGES, 0);
    test_unlisted_pages(0, true, 0, PAGES - 1);
    test_unlisted_pages(SLOT_OFFSET, false, PAGES, 0);
    test_unlisted_pages(SLOT_OFFSET, true, 0, PAGES - 1);
    test_unlisted_pages(2 * PAGE, false, 0, 0); /* nothing leads back */
    test_stacks_that_migrate(1, true);
    test_stacks_that_migrate(0, false); /* the stack would begin too far past the chunk's start */
    test_stacks_that_migrate(2, false);
    return EXIT_SUCCESS;
}
