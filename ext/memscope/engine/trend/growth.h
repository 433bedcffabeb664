/* Unbounded growth in one series, apart from the causes that move a healthy process's memory. Pure. Needs no GVL. */
#pragma once

#include "trend/regression.h"

/* Growth is detected at this many standard errors. */
#define MEMSCOPE_DETECTION_ERRORS 5.0

struct memscope_growth_step {
    size_t point; /* the first one after the step */
    double height;
};

struct memscope_growth {
    size_t onset;                                /* the point since which it grows */
    double slope, error;                         /* mebibytes an hour, and its standard error */
    double slope_since_start, error_since_start; /* of growth since the first point */
    struct memscope_trend_noise noise;
    size_t step_count;
    struct memscope_growth_step steps[MEMSCOPE_REGRESSION_STEPS];
    double direction[MEMSCOPE_REGRESSION_ROWS]; /* dot products of series with it are proportional to the slopes */
    double remains[MEMSCOPE_REGRESSION_ROWS];   /* the part that neither columns nor growth explain: noise, and more */
};

/*
 * Looks for growth in a series. Leaves the columns in the regression, with the series' steps. `least` is a lower bound
 * of the series' noise. `noise` is the noise found the last time, or zeros, and is replaced by the noise found now.
 */
void memscope_growth_find(struct memscope_regression *regression, const struct memscope_points *points,
                          const double *values, double level, const struct memscope_trend_noise *least,
                          struct memscope_trend_noise *noise, struct memscope_growth *growth);

/*
 * A series since the onset of its growth, less all other explained parts. Splits the time since the onset into
 * MEMSCOPE_PAIRED_POINTS equal parts, and writes the mean of each part that has points. Returns the number of these
 * parts.
 */
size_t memscope_growth_alone(const struct memscope_regression *regression, const struct memscope_growth *growth,
                             double *hours, double *values);

/*
 * Hours of data, with one value per `interval` hours, after which a slope that starts `onset` hours after the first
 * point of a series can be detected. INFINITY for more than a month.
 */
double memscope_growth_needs(double slope, double onset, double interval, double level,
                             const struct memscope_trend_noise *noise);
