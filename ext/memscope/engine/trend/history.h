/*
 * The input of a verdict, from the rings of this process: the minimum of each series in each epoch, the layers of
 * memory, and each row's growth. Pure, apart from the scratch memory. The caller holds the GVL for the rings.
 */
#pragma once

#include "base/scratch.h"
#include "trend/rings.h"
#include "trend/verdict.h"

enum memscope_history_series {
#define SERIES(name, unit) MEMSCOPE_HISTORY_##name,
#include "trend/series.def"
    MEMSCOPE_HISTORY_SERIES,
    MEMSCOPE_HISTORY_FIRST_ROW = MEMSCOPE_HISTORY_ruby_heap,
    MEMSCOPE_HISTORY_ROWS = MEMSCOPE_HISTORY_SERIES - MEMSCOPE_HISTORY_FIRST_ROW,
};

/* The name and the unit of each series. */
extern const char *const memscope_history_names[MEMSCOPE_HISTORY_SERIES];
extern const uint32_t memscope_history_units[MEMSCOPE_HISTORY_SERIES];

/* A series is left out of the verdict if the first epochs, or the last ones, have no sample of it. */
enum memscope_history_use {
    MEMSCOPE_HISTORY_USED,
    MEMSCOPE_HISTORY_UNSAMPLED,
    MEMSCOPE_HISTORY_BEGAN_LATE,
    MEMSCOPE_HISTORY_ENDED,
};

struct memscope_history {
    struct memscope_trend trend;        /* in scratch, where seconds are the epochs' starts by CLOCK_BOOTTIME */
    double first_seconds, last_seconds; /* of the epochs, 0 without any */
    double rss_bytes, unshared_bytes;   /* in the last epoch, NAN if unknown */
    unsigned epoch_seconds;
    uint64_t ended; /* when the last epoch ended, or the first begins, 0 without RSS */
    enum memscope_history_use uses[MEMSCOPE_HISTORY_SERIES];
    unsigned unsampled_epochs[MEMSCOPE_HISTORY_SERIES]; /* of a series that began late or ended */
    /* The series for lack of which a layer, or a part of it, is unknown, or MEMSCOPE_HISTORY_SERIES. */
    enum memscope_history_series missing[MEMSCOPE_LAYERS];
};

/*
 * Lays out epochs of equal length: of the first length of 5, 10, 20 and 30 minutes with at least one major GC per epoch
 * on average. A longer length is used only if 24 epochs remain. Epochs without a sample of RSS, in which the process or
 * the machine was suspended, are left out, and the first ones until all series are known. A series that is sampled more
 * rarely moves with the series that it is a part of between two samples, and stays after its last sample.
 *
 * The layers are differences of such series, so that they sum to RSS. A layer with an unknown part is left out, and its
 * growth is unattributed. `spacing`: intended seconds between the samples of each series.
 */
enum memscope_status memscope_history_take(const struct memscope_rings *rings, const unsigned *spacing,
                                           struct memscope_scratch *scratch, struct memscope_history *history);

/*
 * Each row's growth in bytes between the first and the last bucket that have all rows, in the finest ring that reaches
 * back far enough. *since: when the first ended. Returns false if there are not two such buckets.
 */
bool memscope_history_growth(const struct memscope_rings *rings, int64_t *bytes, uint64_t *since);

/* A series' change since the bucket of that time. Returns false if it has fewer than two values since then. */
bool memscope_history_change(const struct memscope_rings *rings, enum memscope_history_series series, uint64_t since,
                             int64_t *change);
