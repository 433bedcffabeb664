/* The points of a series for a verdict. Pure. Needs no GVL. */
#pragma once

#include "trend/verdict.h"

enum { MEMSCOPE_SERIES_RSS = MEMSCOPE_LAYERS, MEMSCOPE_SERIES };

/* Hours since the first point, and mebibytes. */
struct memscope_floors {
    size_t count;
    double began_seconds; /* the time of hour 0 */
    double hours[MEMSCOPE_TREND_POINTS];
    double sizes[MEMSCOPE_TREND_POINTS]; /* number of values in each point's mean */
    bool known[MEMSCOPE_SERIES];
    double values[MEMSCOPE_SERIES][MEMSCOPE_TREND_POINTS]; /* layers, RSS */
};

/* The noise, estimated from the newest of these values. */
double memscope_floors_noise(const double *values, size_t count);

/* Returns true if the series meets the requirements of verdict.h. */
bool memscope_trend_is_sound(const struct memscope_trend *trend);

/*
 * Takes the values after the last restart, which is a lasting fall of RSS by more than a sixth and by more than its
 * noise. Leaves out points from which RSS came back immediately. Averages older points, so that layers that sum to RSS
 * still do.
 */
void memscope_floors_take(const struct memscope_trend *trend, struct memscope_floors *floors);
