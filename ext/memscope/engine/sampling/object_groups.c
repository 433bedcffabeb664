#include "sampling/object_groups.h"

#include "base/merge_sort.h"

#include <math.h>
#include <stdlib.h>

/* A settled sample: its group, its window, and its contribution to the estimates. */
struct item {
    struct memscope_object_key key;
    uint32_t window;
    double allocations, objects, bytes;
};

static struct memscope_object_key key_of(const struct memscope_object_sample *sample,
                                         const struct memscope_generations *generations) {
    return (struct memscope_object_key){sample->stack, sample->class_name, sample->thread, sample->tag,
                                        memscope_generation_of(generations, sample->epoch)};
}

/* By one member after another. Both begin with a key. */
static int compare(const void *left, const void *right) {
    const uint32_t *one = left, *other = right, *end = one + sizeof(struct memscope_object_key) / sizeof *one;

    for (; one < end && *one == *other; one++)
        other++;
    return one == end ? 0 : *one < *other ? -1 : 1;
}

static bool in_order(const void *left, const void *right) {
    int order = compare(left, right);

    return order < 0 || (order == 0 && ((const struct item *)left)->window <= ((const struct item *)right)->window);
}

/* The settled samples as items, sorted. */
static size_t collect(const struct memscope_object_samples *samples,
                      size_t (*bytes_of)(const struct memscope_object_sample *sample),
                      const struct memscope_generations *generations, struct item *items, struct item *buffer) {
    size_t count = 0;

    for (uint32_t index = 0; index < samples->count; index++) {
        const struct memscope_object_sample *sample = &samples->list[index];

        if (sample->pending)
            continue;
        items[count++] = (struct item){key_of(sample, generations), sample->window,
                                       (double)sample->stands_for * MEMSCOPE_WINDOW_ALLOCATIONS, (double)sample->weight,
                                       (double)bytes_of(sample) * (double)sample->weight};
    }
    memscope_merge_sort((char *)items, count, sizeof *items, (char *)buffer, in_order);
    return count;
}

static void scale(struct item *item, double factor) {
    item->allocations *= factor;
    item->objects *= factor;
    item->bytes *= factor;
}

/* Adds an item to its window's share: the last share or a new one, since items are sorted by window. */
static void add_share(struct memscope_object_group *group, struct memscope_window_share *shares,
                      const struct item *item) {
    if (group->share_count == 0 || shares[group->share_count - 1].window != item->window)
        shares[group->share_count++] =
            (struct memscope_window_share){.window = item->window, .allocations = item->allocations};
    shares[group->share_count - 1].samples++;
    shares[group->share_count - 1].objects += item->objects;
    shares[group->share_count - 1].bytes += item->bytes;
}

static void build(struct memscope_object_groups *groups, const struct item *items, size_t count,
                  struct memscope_window_share *shares) {
    struct memscope_object_group *group = NULL;

    for (size_t index = 0; index < count; index++) {
        const struct item *item = &items[index];

        if (group == NULL || compare(group, item) != 0) {
            shares += group == NULL ? 0 : group->share_count;
            group = &groups->list[groups->count++];
            *group = (struct memscope_object_group){.key = item->key, .shares = shares};
        }
        group->samples++;
        group->objects += item->objects;
        group->bytes += item->bytes;
        group->squares += item->bytes * item->bytes;
        add_share(group, shares, item);
    }
}

static void retain(struct memscope_object_samples *samples, const struct memscope_object_groups *groups) {
    for (size_t index = 0; index < groups->count; index++) {
        memscope_call_retain(&samples->calls, groups->list[index].key.stack);
        memscope_text_retain(&samples->texts, groups->list[index].key.class_name);
        memscope_text_retain(&samples->texts, groups->list[index].key.thread);
    }
}

enum memscope_status memscope_object_samples_read(struct memscope_object_samples *samples,
                                                  struct memscope_scratch *scratch,
                                                  size_t (*bytes_of)(const struct memscope_object_sample *sample),
                                                  const struct memscope_generations *generations, uint32_t window,
                                                  double last, double watched, struct memscope_object_groups *groups) {
    size_t room = samples->count, count;
    struct item *items = memscope_scratch_take(scratch, room * sizeof *items);
    struct item *buffer = memscope_scratch_take(scratch, room * sizeof *buffer);
    struct memscope_window_share *shares = memscope_scratch_take(scratch, room * sizeof *shares);

    *groups = (struct memscope_object_groups){.list = memscope_scratch_take(scratch, room * sizeof *groups->list)};
    if (!items || !buffer || !shares || !groups->list)
        return MEMSCOPE_NO_MEMORY;
    count = collect(samples, bytes_of, generations, items, buffer);
    for (size_t index = 0; index < count; index++)
        if (items[index].window == window) {
            scale(&items[index], last);
            items[index].allocations *= watched;
        }
    build(groups, items, count, shares);
    retain(samples, groups);
    return MEMSCOPE_OK;
}

struct memscope_object_group *memscope_object_groups_find(const struct memscope_object_groups *groups,
                                                          const struct memscope_object_sample *sample,
                                                          const struct memscope_generations *generations) {
    struct memscope_object_key key = key_of(sample, generations);

    return bsearch(&key, groups->list, groups->count, sizeof *groups->list, compare);
}

void memscope_object_groups_release(struct memscope_object_samples *samples, struct memscope_object_groups *groups) {
    for (size_t index = 0; index < groups->count; index++) {
        memscope_call_release(&samples->calls, &samples->texts, groups->list[index].key.stack);
        memscope_text_release(&samples->texts, groups->list[index].key.class_name);
        memscope_text_release(&samples->texts, groups->list[index].key.thread);
    }
    groups->count = 0;
}

void memscope_window_sums_add(struct memscope_window_sums *sums, double added, double allocations) {
    sums->sum += added;
    sums->squares += added * added;
    sums->products += added * allocations;
}

/*
 * n (`worth`) is the effective number of windows. The factor (n / (n − 1))⁴ corrects for few windows. One square is the
 * jackknife's, which leaves out one window at a time. The other allows for the error of the variance, which is
 * estimated from the same windows. With both, the true value is beyond 3 standard errors as rarely as it should be. The
 * spread between windows applies only to allocations outside of windows (`unseen`): where windows leave nothing out,
 * the spread causes no error.
 */
double memscope_window_variance(const struct memscope_window_sums *sums, const struct memscope_sampling_plan *plan,
                                uint64_t samples, double objects, double squares) {
    double count = (double)samples, worth, rate, unseen, independent, clustered = 0;

    if (samples == 0 || !(objects > 0))
        return 0;
    independent = fmax(sums->sum * sums->sum / count, squares) * (1 - count / objects);
    if (plan->windows > 1) {
        worth = memscope_plan_equal_windows(plan);
        rate = sums->sum / plan->stood_for;
        clustered = pow(worth / fmax(worth - 1, 0.5), 4) *
                    (sums->squares - 2 * rate * sums->products + rate * rate * plan->squares);
    }
    unseen = 1 - memscope_plan_share(plan);
    return fmax(independent, unseen * clustered + (1 - unseen) * independent) * (count + 1) / count;
}
