#include "trend/floors.h"

#include "trend/statistics.h"

#include <math.h>
#include <string.h>

#define MEBIBYTE 1048576.0
#define MAX_BYTES 1152921504606846976.0 /* 2^60 */
/*
 * The newest points stay as they are. Before them, POINTS_PER_SIZE points average 2 values each, the next
 * POINTS_PER_SIZE average 4 each, and so on up to 64.
 */
#define NEWEST 32
#define POINTS_PER_SIZE 14
/* A point is an outlier if it differs from its neighbours by more than this many standard deviations of the noise. */
#define OUTLIER 6
#define RESTART_SHARE (1.0 / 6)
/* The number of newest points that estimate the noise, and of points on each side that show that a fall lasted. */
#define NOISE_POINTS 128
#define NEIGHBOURS 3

static bool is_amount(double value, double most) {
    return value >= 0 && value <= most; /* false for NAN */
}

static bool are_amounts(const double *values, size_t count) {
    bool are = true; /* no early exit: this loop runs over all points of all series */

    for (size_t index = 0; index < count; index++)
        are &= is_amount(values[index], MAX_BYTES);
    return are;
}

bool memscope_trend_is_sound(const struct memscope_trend *trend) {
    if (!is_amount(trend->limit_bytes, MAX_BYTES) || !is_amount(trend->working_set_bytes, MAX_BYTES) ||
        !is_amount(trend->horizon_seconds, MAX_BYTES))
        return false;
    if (trend->count == 0)
        return true;
    if (trend->seconds == NULL || trend->rss == NULL || !are_amounts(trend->rss, trend->count))
        return false;
    for (size_t index = 0; index < trend->count; index++)
        if (!is_amount(fabs(trend->seconds[index]), MAX_BYTES) ||
            (index > 0 && !(trend->seconds[index] > trend->seconds[index - 1])))
            return false;
    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        if (trend->layers[layer] != NULL && !are_amounts(trend->layers[layer], trend->count))
            return false;
    return true;
}

double memscope_floors_noise(const double *values, size_t count) {
    double room[NOISE_POINTS];
    size_t taken = count < NOISE_POINTS ? count : NOISE_POINTS;

    return memscope_noise(values + count - taken, taken, room);
}

/* The first point after the last restart. */
static size_t last_restart(const double *rss, size_t count, double noise) {
    for (size_t index = count < NEIGHBOURS ? 0 : count - NEIGHBOURS + 1; index-- > NEIGHBOURS;) {
        double before = rss[index - 1], after = rss[index];

        if (after >= before * (1 - RESTART_SHARE) || before - after <= OUTLIER * noise)
            continue;
        for (size_t distance = 1; distance < NEIGHBOURS; distance++) { /* the least before, the most after */
            before = fmin(before, rss[index - 1 - distance]);
            after = fmax(after, rss[index + distance]);
        }
        if (after < before * (1 - RESTART_SHARE))
            return index;
    }
    return 0;
}

/* Returns true if a point is far from the median of itself and its neighbours, two on each side. */
static bool is_outlier(const double *rss, size_t count, size_t index, double noise) {
    size_t first = index < 2 ? 0 : index - 2, after = index + 3 < count ? index + 3 : count;
    double near[5];

    if (after - first < 5 || fabs(rss[index] - rss[index - 1]) <= OUTLIER * noise)
        return false;
    memcpy(near, rss + first, sizeof near);
    return fabs(rss[index] - memscope_median(near, 5)) > OUTLIER * noise;
}

/*
 * Adds the mean of the points first to after - 1, without outliers, in front of the points so far, which are the last
 * of each array. Adds none if all are outliers.
 */
static void take_mean(const struct memscope_trend *trend, size_t first, size_t after, const bool *is_out,
                      struct memscope_floors *floors) {
    size_t at = MEMSCOPE_TREND_POINTS - 1 - floors->count, taken = 0;
    double seconds = 0, sums[MEMSCOPE_SERIES] = {0};

    for (size_t index = first; index < after; index++) {
        if (is_out[index - first])
            continue;
        taken++;
        seconds += trend->seconds[index] - floors->began_seconds;
        sums[MEMSCOPE_SERIES_RSS] += trend->rss[index];
        for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
            sums[layer] += trend->layers[layer] != NULL ? trend->layers[layer][index] : 0;
    }
    if (taken == 0)
        return;
    floors->hours[at] = seconds / (double)taken / 3600;
    floors->sizes[at] = (double)taken;
    for (int series = 0; series < MEMSCOPE_SERIES; series++)
        floors->values[series][at] = sums[series] / (double)taken / MEBIBYTE;
    floors->count++;
}

/* Moves the last points of an array to its beginning. */
static void move_to_front(double *values, size_t count) {
    memmove(values, values + MEMSCOPE_TREND_POINTS - count, count * sizeof *values);
}

void memscope_floors_take(const struct memscope_trend *trend, struct memscope_floors *floors) {
    double noise = memscope_floors_noise(trend->rss, trend->count);
    size_t start = last_restart(trend->rss, trend->count, noise), after = trend->count, size = 1, of_size = 0;
    bool is_out[MEMSCOPE_TREND_POINTS];

    noise = fmax(memscope_floors_noise(trend->rss + start, trend->count - start), trend->rss[start] / 1000);
    floors->count = 0;
    floors->began_seconds = trend->seconds[start];
    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        floors->known[layer] = trend->layers[layer] != NULL;
    floors->known[MEMSCOPE_SERIES_RSS] = true;
    while (after > start && floors->count < MEMSCOPE_TREND_POINTS) { /* from the newest to the oldest */
        size_t first = after - start < size ? start : after - size;

        for (size_t index = first; index < after; index++)
            is_out[index - first] = is_outlier(trend->rss + start, trend->count - start, index - start, noise);
        take_mean(trend, first, after, is_out, floors);
        after = first;
        if (++of_size >= (size == 1 ? NEWEST : POINTS_PER_SIZE) && size < MEMSCOPE_TREND_POINTS / 2) {
            size *= 2;
            of_size = 0;
        }
    }
    move_to_front(floors->hours, floors->count);
    move_to_front(floors->sizes, floors->count);
    for (int series = 0; series < MEMSCOPE_SERIES; series++)
        move_to_front(floors->values[series], floors->count);
}
