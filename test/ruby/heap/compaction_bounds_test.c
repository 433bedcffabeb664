/* The bounds of the pages that compaction leaves, for heaps simple enough to count by hand. Silent when right. */
#include "../../engine/expect.h"
#include "ruby/heap/compaction_bounds.h"

#include <string.h>

#define SLOTS 100

static struct memscope_slot_sizes sizes;

/* Sums pages of one slot size, with live[i] live slots and the flags pinned[i] (NULL: none) each. */
static const struct memscope_slot_size *one_size(const uint32_t *live, uint8_t *pinned, size_t count,
                                                 bool pinned_pages_first) {
    struct memscope_heap_page pages[16] = {{0}};
    struct memscope_heap_pins pins = {.pages = pinned};

    for (size_t index = 0; index < count; index++)
        pages[index] = (struct memscope_heap_page){.slot_bytes = 40, .slot_count = SLOTS, .live_count = live[index]};
    memscope_slot_sizes_sum(pages, count, &pins, pinned_pages_first, &sizes);
    EXPECT(sizes.count == 1 && sizes.total.pages == count);
    return &sizes.list[0];
}

static void test_sums(void) {
    const uint32_t live[] = {0, 9, 10, 99, 100};
    const struct memscope_slot_size *size = one_size(live, NULL, 5, true);

    EXPECT(size->pages == 5 && size->slots == 500 && size->live_slots == 218 && size->hidden_empty_pages == 1);
    EXPECT(size->tenths[0] == 2 && size->tenths[1] == 1 && size->tenths[9] == 2);
    EXPECT(size->pinned_pages_min == 0 && size->pinned_pages_max == 0);
    EXPECT(size->fewest_pages == 3); /* 218 objects */
    EXPECT(size->most_pages == 4);   /* plus the page in which the cursors meet */
}

static void test_pins_keep_pages(void) {
    const uint32_t live[] = {1, 1, 1, 1, 1, 1, 1, 1};
    uint8_t pinned[] = {MEMSCOPE_PAGE_PINS, MEMSCOPE_PAGE_PINS, MEMSCOPE_PAGE_MAY_PIN, 0, 0, 0, 0, 0};
    const struct memscope_slot_size *size = one_size(live, pinned, 8, true);

    EXPECT(size->pinned_pages_min == 2 && size->pinned_pages_max == 3);
    EXPECT(size->fewest_pages == 2);
    EXPECT(size->most_pages == 4);
    size = one_size(live, pinned, 8, false); /* the 5 moving objects need a page: the 3 pinned pages may take none */
    EXPECT(size->fewest_pages == 2);
    EXPECT(size->most_pages == 5);
}

static void test_a_full_heap_keeps_all(void) {
    const uint32_t live[] = {100, 100, 100};
    const struct memscope_slot_size *size = one_size(live, NULL, 3, false);

    EXPECT(size->fewest_pages == 3 && size->most_pages == 3);
}

/* Objects that would move to another slot size need a free slot there; which of them get one is unknown. */
static void test_resizes(void) {
    struct memscope_heap_page pages[] = {{.slot_bytes = 40, .slot_count = SLOTS, .live_count = 100},
                                         {.slot_bytes = 40, .slot_count = SLOTS, .live_count = 50},
                                         {.slot_bytes = 80, .slot_count = SLOTS, .live_count = 90}};
    uint8_t pinned[] = {MEMSCOPE_PAGE_RESIZES, MEMSCOPE_PAGE_RESIZES, 0};
    struct memscope_heap_pins pins = {.pages = pinned, .slot_sizes = 2};

    pins.resizes[0] = (struct memscope_resizes){.slot_bytes = 40, .source = 60};
    pins.resizes[1] = (struct memscope_resizes){.slot_bytes = 80, .target = 60};
    memscope_slot_sizes_sum(pages, 3, &pins, true, &sizes);
    EXPECT(sizes.count == 2);
    EXPECT(sizes.list[0].pinned_pages_min == 0 && sizes.list[0].pinned_pages_max == 2);
    EXPECT(sizes.list[0].fewest_pages == 2 && sizes.list[0].most_pages == 2); /* 50 of the 60 find no free slot */
    EXPECT(sizes.list[1].fewest_pages == 1 && sizes.list[1].most_pages == 1);
    EXPECT(sizes.total.pages == 3 && sizes.total.fewest_pages == 3 && sizes.total.most_pages == 3);
    pages[2].live_count = 0;
    memscope_slot_sizes_sum(pages, 3, &pins, true, &sizes);
    EXPECT(sizes.list[0].pinned_pages_min == 0 && sizes.list[0].fewest_pages == 1);
}

/* Objects whose target size is not known may find a slot of any size. */
static void test_unplaced_resizes(void) {
    struct memscope_heap_page pages[] = {{.slot_bytes = 40, .slot_count = SLOTS, .live_count = 100},
                                         {.slot_bytes = 40, .slot_count = SLOTS, .live_count = 20},
                                         {.slot_bytes = 80, .slot_count = SLOTS, .live_count = 40}};
    uint8_t pinned[] = {MEMSCOPE_PAGE_RESIZES, MEMSCOPE_PAGE_RESIZES, 0};
    struct memscope_heap_pins pins = {.pages = pinned, .slot_sizes = 2};

    pins.resizes[0] = (struct memscope_resizes){.slot_bytes = 40, .source = 40, .unplaced = 40};
    pins.resizes[1] = (struct memscope_resizes){.slot_bytes = 80};
    memscope_slot_sizes_sum(pages, 3, &pins, true, &sizes);
    EXPECT(sizes.list[0].pinned_pages_min == 0 && sizes.list[0].fewest_pages == 1);
}

int main(void) {
    test_sums();
    test_pins_keep_pages();
    test_a_full_heap_keeps_all();
    test_resizes();
    test_unplaced_resizes();
    return 0;
}
