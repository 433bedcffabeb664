#include "sampling/tag_objects.h"

#include "base/merge_sort.h"

/* A judged sample. */
struct item {
    uint32_t tag;
    struct memscope_window_share share;
};

static bool in_order(const void *left, const void *right) {
    const struct item *one = left, *other = right;

    return one->tag != other->tag ? one->tag < other->tag : one->share.window <= other->share.window;
}

static double factor(struct memscope_windows_at at, const struct memscope_object_sample *sample) {
    return sample->window == at.window ? at.last : 1;
}

static struct item judged_item(const struct memscope_object_sample *sample, struct memscope_windows_at at) {
    double scale = factor(at, sample), watched = sample->window == at.window ? at.watched : 1;

    return (struct item){
        .tag = sample->tag,
        .share = {.window = sample->window,
                  .samples = 1,
                  .allocations = (double)sample->stands_for * MEMSCOPE_WINDOW_ALLOCATIONS * scale * watched,
                  .objects = (double)sample->weight * scale}};
}

static void add_live(struct memscope_tag_objects *tag, const struct memscope_object_sample *sample, double scale,
                     size_t bytes) {
    tag->samples++;
    tag->objects += (double)sample->weight * scale;
    tag->bytes += (double)sample->weight * scale * (double)bytes;
}

/* Merges the sorted items into one share for each tag and window, in shares[0..]. */
static void group(const struct item *items, size_t count, struct memscope_window_share *shares,
                  struct memscope_tag_objects *tags) {
    for (size_t index = 0; index < count; index++) {
        const struct item *item = &items[index];
        struct memscope_tag_objects *tag = &tags[item->tag];
        bool same = tag->judged_count > 0 && tag->judged[tag->judged_count - 1].window == item->share.window;

        if (same) {
            shares[-1].samples++;
            shares[-1].objects += item->share.objects;
        } else {
            *shares = item->share;
            tag->judged = tag->judged_count == 0 ? shares : tag->judged;
            tag->judged_count++;
            shares++;
        }
        tag->judged_samples++;
    }
}

enum memscope_status memscope_tag_objects_read(const struct memscope_object_samples *samples,
                                               struct memscope_scratch *scratch,
                                               size_t (*bytes_of)(const struct memscope_object_sample *sample),
                                               struct memscope_windows_at now, struct memscope_windows_at judged,
                                               uint32_t epoch, struct memscope_tag_objects *tags) {
    size_t room = samples->count, count = 0;
    struct item *items = memscope_scratch_take(scratch, room * sizeof *items);
    struct item *buffer = memscope_scratch_take(scratch, room * sizeof *buffer);
    struct memscope_window_share *shares = memscope_scratch_take(scratch, room * sizeof *shares);

    if (!items || !buffer || !shares)
        return MEMSCOPE_NO_MEMORY;
    for (uint32_t index = 0; index < samples->count; index++) {
        const struct memscope_object_sample *sample = &samples->list[index];

        if (sample->pending || sample->tag == 0)
            continue;
        add_live(&tags[sample->tag], sample, factor(now, sample), bytes_of(sample));
        if (sample->epoch < epoch)
            items[count++] = judged_item(sample, judged);
    }
    memscope_merge_sort((char *)items, count, sizeof *items, (char *)buffer, in_order);
    group(items, count, shares, tags);
    return MEMSCOPE_OK;
}
