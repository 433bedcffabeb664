/* Growth without an end in one series, beside all that moves a healthy process's memory. Pure; no GVL needed. */
#ifndef MEMSCOPE_GROWTH_H
#define MEMSCOPE_GROWTH_H

#include "trend/floors.h"
#include "trend/regression.h"

/* Growth is told from none at so many standard errors. */
#define MEMSCOPE_TELLING 5.0

struct memscope_growth_step {
    size_t point; /* the first after it */
    double height;
};

struct memscope_growth {
    size_t onset;                                /* the point since which it grows */
    double slope, error;                         /* mebibytes an hour, and its standard error */
    double slope_since_start, error_since_start; /* of growth since the first point */
    struct memscope_trend_noise noise;
    size_t step_count;
    struct memscope_growth_step steps[MEMSCOPE_REGRESSION_STEPS];
    double direction[MEMSCOPE_REGRESSION_ROWS]; /* the product of a series with it is its slope, beside all else */
    double remains[MEMSCOPE_REGRESSION_ROWS];   /* of the series: noise, and what is not understood */
};

/* Looks for growth in a series. Leaves the columns in the regression, with the series' steps. `least` is the noise that
 * it has at least; `noise` what it had when it was looked at before, or zeros, and becomes what it has now. */
void memscope_growth_find(struct memscope_regression *regression, const struct memscope_points *points,
                          const double *values, double level, const struct memscope_trend_noise *least,
                          struct memscope_trend_noise *noise, struct memscope_growth *growth);

/* A series without all that was explained but growth, since its onset: the mean of each of MEMSCOPE_PAIRED_POINTS equal
 * parts of the time in which there are points. Returns how many. */
size_t memscope_growth_alone(const struct memscope_regression *regression, const struct memscope_growth *growth,
                             double *hours, double *values);

/*
 * How many hours from its first point on a series must have until a slope could be told from none that began `onset`
 * hours after that point, with a value each `interval` hours. INFINITY: not within a month.
 */
double memscope_growth_needs(double slope, double onset, double interval, double level,
                             const struct memscope_trend_noise *noise);

#endif
