#include "../expect.h"
#include "trend/history.h"

#include <math.h>

static const uint32_t units[MEMSCOPE_HISTORY_SERIES] = {
#define SERIES(name, unit) unit,
#include "trend/series.def"
};
static const unsigned spacing[MEMSCOPE_HISTORY_SERIES] = {[MEMSCOPE_HISTORY_held] = 600};
static const uint64_t start = 600000, mebibyte = 1048576;
static struct memscope_scratch scratch;

/* One sample, in which malloc's memory in use has grown by so many MiB; some series are left out. */
static void add(struct memscope_rings *rings, uint64_t seconds, uint64_t grown, bool with_held) {
    uint64_t values[MEMSCOPE_HISTORY_SERIES];

    for (int series = 0; series < MEMSCOPE_HISTORY_SERIES; series++)
        values[series] = MEMSCOPE_UNKNOWN;
    for (int row = MEMSCOPE_HISTORY_FIRST_ROW; row < MEMSCOPE_HISTORY_SERIES; row++)
        values[row] = 10 * mebibyte;
    values[MEMSCOPE_HISTORY_malloc] = (100 + grown) * mebibyte;
    values[MEMSCOPE_HISTORY_malloc_in_use] = (80 + grown) * mebibyte;
    values[MEMSCOPE_HISTORY_live_bytes] = 7 * mebibyte;
    values[MEMSCOPE_HISTORY_uss] = values[MEMSCOPE_HISTORY_rss] = (100 + grown + 80) * mebibyte;
    values[MEMSCOPE_HISTORY_major_gcs] = seconds / 60;
    if (with_held)
        values[MEMSCOPE_HISTORY_held] = (50 + grown / 2) * mebibyte;
    EXPECT(memscope_rings_add(rings, seconds, values));
}

static struct memscope_rings *planted(uint64_t seconds, uint64_t held_until) {
    struct memscope_rings *rings = memscope_rings_map(units, MEMSCOPE_HISTORY_SERIES);

    for (uint64_t at = 0; at < seconds; at += 10)
        add(rings, start + at, at / 100, at < held_until);
    return rings;
}

static struct memscope_history take(const struct memscope_rings *rings) {
    struct memscope_history history;

    memscope_scratch_close(&scratch);
    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    EXPECT(memscope_history_take(rings, spacing, &scratch, &history) == MEMSCOPE_OK);
    return history;
}

static void test_nothing(void) {
    struct memscope_history history = take(NULL);

    EXPECT(history.trend.count == 0 && history.ended == 0 && isnan(history.rss_bytes));
    history = take(memscope_rings_map(units, MEMSCOPE_HISTORY_SERIES));
    EXPECT(history.trend.count == 0 && history.uses[MEMSCOPE_HISTORY_rss] == MEMSCOPE_HISTORY_UNSAMPLED);
}

/* Layers that are known sum to RSS, but for the row of memscope and what has no owner. */
static void test_layers(void) {
    struct memscope_history history = take(planted(7200, 7200));
    const double **layers = history.trend.layers;

    EXPECT(history.trend.count == 24 && history.epoch_seconds == 300 && history.ended == start + 7200);
    for (size_t epoch = 0; epoch < history.trend.count; epoch++) {
        double sum = layers[MEMSCOPE_LAYER_OBJECTS][epoch] + layers[MEMSCOPE_LAYER_NATIVE][epoch] +
                     layers[MEMSCOPE_LAYER_FREE][epoch] + layers[MEMSCOPE_LAYER_STACKS][epoch] +
                     layers[MEMSCOPE_LAYER_CODE][epoch] + layers[MEMSCOPE_LAYER_SHARED][epoch];

        EXPECT(history.trend.seconds[epoch] == (double)(start + epoch * 300));
        EXPECT(sum + 20.0 * (double)mebibyte == history.trend.rss[epoch]);
    }
    EXPECT(layers[MEMSCOPE_LAYER_UNSHARED] == NULL && layers[MEMSCOPE_LAYER_UNATTRIBUTED] == NULL);
}

static void test_a_series_that_ended(void) {
    struct memscope_history history = take(planted(7200, 3000));

    EXPECT(history.uses[MEMSCOPE_HISTORY_held] == MEMSCOPE_HISTORY_ENDED);
    EXPECT(history.missing[MEMSCOPE_LAYER_NATIVE] == MEMSCOPE_HISTORY_held);
    EXPECT(history.trend.layers[MEMSCOPE_LAYER_NATIVE] == NULL && history.trend.layers[MEMSCOPE_LAYER_FREE] != NULL);
    history = take(planted(7200, 6300)); /* lately not sampled: it keeps its share of what is in use */
    EXPECT(history.uses[MEMSCOPE_HISTORY_held] == MEMSCOPE_HISTORY_USED);
    EXPECT(fabs(history.trend.layers[MEMSCOPE_LAYER_NATIVE][23] - (30 + 34.5) * (double)mebibyte) < (double)mebibyte);
}

/* The history of more than a week ends now, and begins a week ago. */
static void test_more_than_a_week(void) {
    struct memscope_history history = take(planted((uint64_t)9 * 24 * 3600, UINT64_MAX));

    EXPECT(history.trend.count > 2000 && history.ended == start + (uint64_t)9 * 24 * 3600);
    EXPECT(history.last_seconds == (double)history.ended - 300);
    EXPECT(history.rss_bytes > 7000.0 * (double)mebibyte);
}

static void test_growth(void) {
    struct memscope_rings *rings = planted(20000, 20000);
    int64_t bytes[MEMSCOPE_HISTORY_ROWS], change;
    uint64_t since;

    EXPECT(memscope_history_growth(rings, bytes, &since) && since == start + 60); /* the end of the first minute */
    for (int row = 0; row < MEMSCOPE_HISTORY_ROWS; row++)
        EXPECT(bytes[row] ==
               (row == MEMSCOPE_HISTORY_malloc - MEMSCOPE_HISTORY_FIRST_ROW ? 199 : 0) * (int64_t)mebibyte);
    EXPECT(memscope_history_change(rings, MEMSCOPE_HISTORY_major_gcs, start + 19400, &change) && change == 10);
    EXPECT(!memscope_history_change(rings, MEMSCOPE_HISTORY_requests, start, &change));
    EXPECT(!memscope_history_growth(planted(10, 10), bytes, &since));
}

int main(void) {
    test_nothing();
    test_layers();
    test_a_series_that_ended();
    test_more_than_a_week();
    test_growth();
    return 0;
}
