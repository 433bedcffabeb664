/* The sampled objects of each tag: those that are alive, and those of them that have been judged. */
#include "sampling/tag_allocations.h"
#include "sampling/tag_objects.h"

#include "../expect.h"

#include <string.h>

static struct memscope_object_samples *samples;
static struct memscope_tag_objects tags[MEMSCOPE_TAGS];

static void add(uint16_t tag, uint32_t window, uint32_t epoch, uint16_t pending) {
    memscope_object_samples_add(samples, (struct memscope_object_sample){.address = 1,
                                                                         .weight = 100,
                                                                         .stands_for = 2,
                                                                         .epoch = epoch,
                                                                         .window = window,
                                                                         .tag = tag,
                                                                         .slot_bytes = 40,
                                                                         .pending = pending});
}

static size_t bytes_of(const struct memscope_object_sample *sample) {
    return sample->slot_bytes;
}

static void read(struct memscope_scratch *scratch, uint32_t epoch) {
    const struct memscope_windows_at now = {.window = 4, .last = 0.5, .watched = 1};
    const struct memscope_windows_at judged = {.window = 2, .last = 0.25, .watched = 0.5};

    memset(tags, 0, sizeof tags);
    EXPECT(memscope_tag_objects_read(samples, scratch, bytes_of, now, judged, epoch, tags) == MEMSCOPE_OK);
}

static void test_live_and_judged(struct memscope_scratch *scratch) {
    read(scratch, 3);
    EXPECT(tags[7].samples == 5 && tags[7].objects == 450 && tags[7].bytes == 450 * 40); /* window 4 counts half */
    EXPECT(tags[7].judged_samples == 3 && tags[7].judged_count == 2);
    EXPECT(tags[7].judged[0].window == 1 && tags[7].judged[0].objects == 200 && tags[7].judged[0].samples == 2);
    EXPECT(tags[7].judged[0].allocations == 2 * MEMSCOPE_WINDOW_ALLOCATIONS);
    EXPECT(tags[7].judged[1].window == 2 && tags[7].judged[1].objects == 25 && tags[7].judged[1].samples == 1);
    EXPECT(tags[7].judged[1].allocations == 2 * MEMSCOPE_WINDOW_ALLOCATIONS * 0.25 * 0.5);
    EXPECT(tags[8].samples == 1 && tags[8].judged_samples == 1 && tags[8].judged[0].objects == 100);
    EXPECT(tags[0].samples == 0 && tags[9].samples == 0);
}

static void test_nothing_is_judged_before_the_first_epoch(struct memscope_scratch *scratch) {
    read(scratch, 0);
    EXPECT(tags[7].samples == 5 && tags[7].judged_samples == 0 && tags[7].judged_count == 0);
}

int main(void) {
    struct memscope_scratch scratch;

    samples = memscope_object_samples_map();
    if (samples == NULL || memscope_scratch_open(&scratch) != MEMSCOPE_OK)
        SKIP("no memory");
    memscope_object_samples_clear(samples);
    add(7, 2, 2, 0);
    add(7, 1, 1, 0);
    add(8, 1, 1, 0);
    add(7, 4, 3, 0); /* not judged yet */
    add(7, 1, 2, 0);
    add(7, 3, 5, 0);
    add(0, 1, 1, 0); /* no tag */
    add(9, 1, 1, 3); /* not settled */
    test_live_and_judged(&scratch);
    test_nothing_is_judged_before_the_first_epoch(&scratch);
    memscope_scratch_close(&scratch);
    return 0;
}
