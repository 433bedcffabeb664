/*
 * The sampled objects of each tag: the live ones, and among them the judged ones, allocated before a moment in the past
 * and found alive by a GC since then.
 */
#pragma once

#include "base/scratch.h"
#include "base/status.h"
#include "sampling/object_groups.h"
#include "sampling/object_samples.h"

struct memscope_tag_objects {
    uint64_t samples;
    double objects, bytes;
    uint64_t judged_samples;                    /* of the judged objects */
    const struct memscope_window_share *judged; /* shares of the judged objects, by window */
    size_t judged_count;
};

/* The windows as of one moment: until the next one begins, the samples of the last one are scaled by `last`. */
struct memscope_windows_at {
    uint32_t window; /* number of the last window */
    double last;     /* as in memscope_plan_at */
    double watched;  /* share of that window that had been watched */
};

/*
 * Reads the settled samples into tags[0..MEMSCOPE_TAGS - 1], which must be empty. The judged objects are those of
 * epochs before `epoch`, and `judged` is the moment at which it began. Returns MEMSCOPE_NO_MEMORY if scratch is
 * exhausted.
 */
enum memscope_status memscope_tag_objects_read(const struct memscope_object_samples *samples,
                                               struct memscope_scratch *scratch,
                                               size_t (*bytes_of)(const struct memscope_object_sample *sample),
                                               struct memscope_windows_at now, struct memscope_windows_at judged,
                                               uint32_t epoch, struct memscope_tag_objects *tags);
