/*
 * What the samples of objects tell: how many objects and bytes each stack, class, tag, thread and generation holds.
 */
#ifndef MEMSCOPE_OBJECT_GROUPS_H
#define MEMSCOPE_OBJECT_GROUPS_H

#include "base/scratch.h"
#include "base/status.h"
#include "sampling/object_samples.h"

/* What the samples of one window add to an estimate. */
struct memscope_window_share {
    uint32_t window;
    double allocations; /* that the window stands for */
    double objects, bytes;
};

/* The samples with one stack, class, tag, thread and generation. */
struct memscope_object_group {
    uint32_t stack, class_name, thread, tag, generation;
    uint64_t samples;
    double objects, bytes;
    const struct memscope_window_share *shares; /* by window */
    size_t share_count;
};

struct memscope_object_groups {
    struct memscope_object_group *list; /* in the scratch of the reading; so are the shares */
    size_t count;
};

/*
 * Groups the settled samples: bytes_of returns the bytes of an object, generation_of the generation of an epoch; `last`
 * is how much the samples of the last window, this one, stand for (memscope_plan_at), `watched` its share that has
 * been. The groups use their stacks and texts until they are released, even if their samples go. Returns
 * MEMSCOPE_NO_MEMORY if scratch is exhausted.
 */
enum memscope_status memscope_object_samples_read(struct memscope_object_samples *samples,
                                                  struct memscope_scratch *scratch,
                                                  size_t (*bytes_of)(const struct memscope_object_sample *sample),
                                                  uint32_t (*generation_of)(uint32_t epoch), uint32_t window,
                                                  double last, double watched, struct memscope_object_groups *groups);

/* The group that a settled sample belongs to; NULL if it was taken since the groups were read. */
struct memscope_object_group *memscope_object_groups_find(const struct memscope_object_groups *groups,
                                                          const struct memscope_object_sample *sample,
                                                          uint32_t (*generation_of)(uint32_t epoch));

void memscope_object_groups_release(struct memscope_object_samples *samples, struct memscope_object_groups *groups);

/* Sums over what windows added to an estimate: of it; of its square; of it times the allocations of the window. */
struct memscope_window_sums {
    double sum, squares, products;
};

void memscope_window_sums_add(struct memscope_window_sums *sums, double added, double allocations);

/*
 * The variance of an estimate, by windows: objects sampled in one window are not independent. What a window adds is
 * compared with the part of the estimate that its share of all allocations would be. Never below the variance of that
 * many independent samples. `objects`: how many the samples stand for.
 */
double memscope_window_variance(const struct memscope_window_sums *sums, const struct memscope_sampling_plan *plan,
                                uint64_t samples, double objects);

#endif
