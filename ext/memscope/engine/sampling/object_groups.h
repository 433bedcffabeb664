/*
 * Estimates from the samples of objects: the live objects and bytes of each combination of stack, class, tag, thread
 * and generation, and the variance of such an estimate.
 */
#pragma once

#include "base/scratch.h"
#include "base/status.h"
#include "sampling/generations.h"
#include "sampling/object_samples.h"

/* The contribution of one window's samples to an estimate. */
struct memscope_window_share {
    uint32_t window, samples;
    double allocations; /* represented by the window */
    double objects, bytes;
};

struct memscope_object_key {
    uint32_t stack, class_name, thread, tag, generation;
};

/* The samples with one key. */
struct memscope_object_group {
    struct memscope_object_key key;
    uint64_t samples;
    double objects, bytes;
    double squares;                             /* of the bytes that each sample adds, summed */
    const struct memscope_window_share *shares; /* by window */
    size_t share_count;
};

struct memscope_object_groups {
    struct memscope_object_group *list; /* in the scratch of the reading, as the shares are */
    size_t count;
};

/*
 * Groups the settled samples. bytes_of returns the bytes of a sample's object. `generations` are those at the beginning
 * of the reading, since a GC during the reading begins another epoch, and may merge generations. `window` is the number
 * of the last window: its samples are scaled by `last` (memscope_plan_at), and the allocations that it represents also
 * by `watched`, the share of the window that has been watched. The groups hold references to their stacks and texts
 * until they are released, even if their samples are dropped before. Returns MEMSCOPE_NO_MEMORY if scratch is
 * exhausted.
 */
enum memscope_status memscope_object_samples_read(struct memscope_object_samples *samples,
                                                  struct memscope_scratch *scratch,
                                                  size_t (*bytes_of)(const struct memscope_object_sample *sample),
                                                  const struct memscope_generations *generations, uint32_t window,
                                                  double last, double watched, struct memscope_object_groups *groups);

/* The group of a settled sample, NULL if the sample was taken after the groups were read. */
struct memscope_object_group *memscope_object_groups_find(const struct memscope_object_groups *groups,
                                                          const struct memscope_object_sample *sample,
                                                          const struct memscope_generations *generations);

void memscope_object_groups_release(struct memscope_object_samples *samples, struct memscope_object_groups *groups);

/*
 * Sums over windows: of each window's contribution to an estimate, of the contribution's square, and of its product
 * with the allocations that the window represents.
 */
struct memscope_window_sums {
    double sum, squares, products;
};

void memscope_window_sums_add(struct memscope_window_sums *sums, double added, double allocations);

/*
 * The variance of an estimate, from the spread between windows, since samples of the same window are not independent.
 * Each window's contribution is compared with the share of the estimate that is in proportion to the allocations that
 * the window represents. The result is never below the variance of the same number of independent samples. `objects` is
 * the number of objects that the samples represent. `squares` is the sum of the squared contributions of samples, or 0
 * if all are equal.
 */
double memscope_window_variance(const struct memscope_window_sums *sums, const struct memscope_sampling_plan *plan,
                                uint64_t samples, double objects, double squares);
