/*
 * What a verdict judges, from the rings of this process: the least sample of each series in each epoch, the layers of
 * memory, and by how much each row has grown. Pure, apart from the scratch memory; whoever uses the rings holds the
 * GVL.
 */
#ifndef MEMSCOPE_HISTORY_H
#define MEMSCOPE_HISTORY_H

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

/* Why a series is not judged. A series is left out if the first epochs, or the last ones, have no sample of it. */
enum memscope_history_use {
    MEMSCOPE_HISTORY_USED,
    MEMSCOPE_HISTORY_UNSAMPLED,
    MEMSCOPE_HISTORY_BEGAN_LATE,
    MEMSCOPE_HISTORY_ENDED,
};

struct memscope_history {
    struct memscope_trend trend;        /* in the scratch memory; seconds of CLOCK_BOOTTIME at which the epochs begin */
    double first_seconds, last_seconds; /* of the epochs; 0 without any */
    double rss_bytes, unshared_bytes;   /* in the last epoch; NAN: unknown */
    unsigned epoch_seconds;
    uint64_t ended; /* when the last epoch ended, or the first begins; 0 without RSS */
    enum memscope_history_use uses[MEMSCOPE_HISTORY_SERIES];
    unsigned unsampled_epochs[MEMSCOPE_HISTORY_SERIES]; /* of a series that began late or ended */
    /* The series for lack of which a layer, or a part of it, is unknown; MEMSCOPE_HISTORY_SERIES: none. */
    enum memscope_history_series missing[MEMSCOPE_LAYERS];
};

/*
 * Lays out epochs of equal length: of the first length of 5, 10, 20 and 30 minutes with at least one major GC per epoch
 * on average; a longer length is used only if 24 epochs remain. Epochs without a sample of RSS, in which the process or
 * the machine was suspended, are left out, and the first ones until all series are known. Between two samples, a series
 * that is sampled more rarely moves with the series that it is a part of; after its last sample, it stays.
 *
 * The layers are differences of such series, so that they sum to RSS. A layer with an unknown part is left out, and its
 * growth counts as unattributed. `spacing` is how many seconds apart the samples of each series are meant to be.
 */
enum memscope_status memscope_history_take(const struct memscope_rings *rings, const unsigned *spacing,
                                           struct memscope_scratch *scratch, struct memscope_history *history);

/*
 * By how many bytes each row has grown between the first and the last bucket that have all of them, in the finest ring
 * that reaches back far enough. *since is when the first ended. False if there are not two such buckets.
 */
bool memscope_history_growth(const struct memscope_rings *rings, int64_t *bytes, uint64_t *since);

/* By how much a series has changed since the bucket of that time. False if it has fewer than two values since then. */
bool memscope_history_change(const struct memscope_rings *rings, enum memscope_history_series series, uint64_t since,
                             int64_t *change);

#endif
