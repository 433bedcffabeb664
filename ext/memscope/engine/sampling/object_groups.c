#include "sampling/object_groups.h"

#include "base/merge_sort.h"

#include <math.h>
#include <stdlib.h>

/* A settled sample: its group, its window, and its contribution to the estimates. */
struct item {
    uint32_t stack, class_name, thread, tag, generation, window;
    double allocations, objects, bytes;
};

static int compare(const struct item *left, const struct item *right) {
    const uint32_t pairs[][2] = {{left->stack, right->stack},           {left->class_name, right->class_name},
                                 {left->thread, right->thread},         {left->tag, right->tag},
                                 {left->generation, right->generation}, {left->window, right->window}};

    for (size_t index = 0; index < sizeof pairs / sizeof *pairs; index++)
        if (pairs[index][0] != pairs[index][1])
            return pairs[index][0] < pairs[index][1] ? -1 : 1;
    return 0;
}

static bool in_order(const void *left, const void *right) {
    return compare(left, right) <= 0;
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
        items[count++] = (struct item){sample->stack,
                                       sample->class_name,
                                       sample->thread,
                                       sample->tag,
                                       memscope_generation_of(generations, sample->epoch),
                                       sample->window,
                                       (double)sample->stands_for * MEMSCOPE_WINDOW_ALLOCATIONS,
                                       (double)sample->weight,
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

static bool is_of_group(const struct memscope_object_group *group, const struct item *item) {
    return group->stack == item->stack && group->class_name == item->class_name && group->thread == item->thread &&
           group->tag == item->tag && group->generation == item->generation;
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

        if (group == NULL || !is_of_group(group, item)) {
            shares += group == NULL ? 0 : group->share_count;
            group = &groups->list[groups->count++];
            *group = (struct memscope_object_group){.stack = item->stack,
                                                    .class_name = item->class_name,
                                                    .thread = item->thread,
                                                    .tag = item->tag,
                                                    .generation = item->generation,
                                                    .shares = shares};
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
        memscope_call_retain(&samples->calls, groups->list[index].stack);
        memscope_text_retain(&samples->texts, groups->list[index].class_name);
        memscope_text_retain(&samples->texts, groups->list[index].thread);
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

static int compare_with_group(const void *item, const void *element) {
    const struct memscope_object_group *group = element;

    return compare(item, &(struct item){.stack = group->stack,
                                        .class_name = group->class_name,
                                        .thread = group->thread,
                                        .tag = group->tag,
                                        .generation = group->generation});
}

struct memscope_object_group *memscope_object_groups_find(const struct memscope_object_groups *groups,
                                                          const struct memscope_object_sample *sample,
                                                          const struct memscope_generations *generations) {
    const struct item item = {.stack = sample->stack,
                              .class_name = sample->class_name,
                              .thread = sample->thread,
                              .tag = sample->tag,
                              .generation = memscope_generation_of(generations, sample->epoch)};

    return bsearch(&item, groups->list, groups->count, sizeof *groups->list, compare_with_group);
}

void memscope_object_groups_release(struct memscope_object_samples *samples, struct memscope_object_groups *groups) {
    for (size_t index = 0; index < groups->count; index++) {
        memscope_call_release(&samples->calls, &samples->texts, groups->list[index].stack);
        memscope_text_release(&samples->texts, groups->list[index].class_name);
        memscope_text_release(&samples->texts, groups->list[index].thread);
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
