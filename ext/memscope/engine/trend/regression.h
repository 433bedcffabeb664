/*
 * A regression of a series on the causes that move a healthy process's memory: a level, a day's and a week's load,
 * warm-up, steps. Each of them but the level and the steps has an expected size, so that growth that only an absurd
 * size would explain stays unexplained (ridge regression: the rows after the points' rows pull each size to 0, with the
 * expected size as standard deviation).
 *
 * Noise has two parts: one that is new in each point, and one that wanders and comes back (an Ornstein-Uhlenbeck
 * process). Rows are whitened: each is the part of a point that the points before do not predict, scaled so that the
 * noise of rows is independent, with variance 1. Columns are orthonormal, so that the explained part is a sum of
 * projections. Hours and mebibytes. Pure. Needs no GVL.
 */
#pragma once

#include "trend/verdict.h"

enum {
    MEMSCOPE_REGRESSION_HABITS = 13, /* a level, and causes with an expected size */
    MEMSCOPE_REGRESSION_STEPS = 3,
    MEMSCOPE_REGRESSION_ROWS = MEMSCOPE_TREND_POINTS + MEMSCOPE_REGRESSION_HABITS - 1,
};

struct memscope_points {
    size_t count;
    const double *hours;
    const double *sizes; /* number of values in each point's mean */
};

struct memscope_regression {
    struct memscope_points points;
    size_t rows, columns;
    /*
     * By point: scale is 1 / the standard deviation of the part that is new, gain the Kalman gain, and left the share
     * of the wandering noise that is left at the next point.
     */
    double scale[MEMSCOPE_TREND_POINTS], gain[MEMSCOPE_TREND_POINTS], left[MEMSCOPE_TREND_POINTS];
    double column[MEMSCOPE_REGRESSION_HABITS + MEMSCOPE_REGRESSION_STEPS][MEMSCOPE_REGRESSION_ROWS];
};

/* Sets up the columns, without steps. `level` is the process's memory. Keeps the pointers. */
void memscope_regression_open(struct memscope_regression *regression, const struct memscope_points *points,
                              double level, const struct memscope_trend_noise *noise);

/* The rows of a series. */
void memscope_regression_series(const struct memscope_regression *regression, const double *values, double *rows);

/* The rows of a series that grows by 1 an hour from a point on. */
void memscope_regression_growth(const struct memscope_regression *regression, size_t onset, double *rows);

/* The rows of a series with a step of height 1 at a point. */
void memscope_regression_step(const struct memscope_regression *regression, size_t first, double *rows);

/* The series that has these rows. */
void memscope_regression_values(const struct memscope_regression *regression, const double *rows, double *values);

/* Subtracts the part that the columns explain from the rows. */
void memscope_regression_residual(const struct memscope_regression *regression, double *rows);

/* Adds the rows, which must be a residual, as a column. Returns false, and adds no column, if all of them are 0. */
bool memscope_regression_add(struct memscope_regression *regression, const double *rows);

/* The effective number of parameters of the columns: an expected size makes a column less than one. */
double memscope_regression_parameters(const struct memscope_regression *regression);

/*
 * The noise under which a series around 0 is most likely. Its wandering part is at least least->wandering.
 * `parameters`: the number fitted to the series.
 */
struct memscope_trend_noise memscope_trend_noise_find(const struct memscope_points *points, const double *values,
                                                      double parameters, const struct memscope_trend_noise *least);

double memscope_product(const double *one, const double *other, size_t count);

/* Subtracts `factor` times `from`. */
void memscope_subtract(double *rows, const double *from, double factor, size_t count);
