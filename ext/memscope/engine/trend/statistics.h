/*
 * Statistics of short series, robust against the outliers, ties and autocorrelation that series of memory have. Pure
 * functions of their arguments, which must be finite. They need no GVL, and no memory but the stack and the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Maximum points of a series whose pairs of points are compared. */
#define MEMSCOPE_PAIRED_POINTS 64

/* The value of this rank, 0 for the smallest. Reorders the values: none before the rank is larger. */
double memscope_ranked(double *values, size_t count, size_t rank);

/* 0 if there are no values. Reorders the values. */
double memscope_median(double *values, size_t count);

/* The probability that a standard normal value is larger than z. */
double memscope_normal_tail(double z);

/*
 * The standard deviation of the noise of a series, by the median distance of each value from the mean of its
 * neighbours: neither a slope nor a few steps change it. For correlated noise, it is about the standard deviation of
 * the part that is new in each value. `room` is for count values.
 */
double memscope_noise(const double *values, size_t count, double *room);

/*
 * The correlation of a series around 0 with itself one point later, between 0 and 0.97. Residuals of a fit with this
 * many parameters, or of a short series, show less correlation than there is. The result is corrected for that to first
 * order (Kendall 1954).
 */
double memscope_autocorrelation(const double *values, size_t count, double parameters);

/* The factor by which this autocorrelation multiplies the variance of a mean or of a slope: (1 + r) / (1 - r). */
double memscope_variance_factor(double autocorrelation);

/*
 * The lower end of the interval of the slope (Theil 1950, Sen 1968): among the slopes of all pairs, so far below their
 * median as z standard deviations of Kendall's score say, widened by the variance factor. At most
 * MEMSCOPE_PAIRED_POINTS points, at strictly growing times. 0 for fewer than two.
 */
double memscope_least_slope(const double *times, const double *values, size_t count, double z, double variance_factor);

/*
 * Mann-Kendall: the probability of so much growth, or more, in a series without a trend. The score's variance is
 * corrected for ties, and multiplied by the variance factor. At most MEMSCOPE_PAIRED_POINTS points. 1 for a series
 * without two different values.
 */
double memscope_mann_kendall(const double *values, size_t count, double variance_factor);

enum memscope_curve_kind {
    MEMSCOPE_CURVE_LINEAR,      /* start + rise * t */
    MEMSCOPE_CURVE_EXPONENTIAL, /* start + rise * (1 - exp(-t / scale)) */
    MEMSCOPE_CURVE_LOGARITHMIC, /* start + rise * ln(1 + t / scale) */
};

struct memscope_curve {
    enum memscope_curve_kind kind;
    double scale;
    double start, rise;
    double bic; /* comparable only between curves of the same series */
};

/* A curve's height above its start at this time, for a rise of 1. */
double memscope_curve_shape(enum memscope_curve_kind kind, double scale, double time);

/*
 * Finds the curve of this kind, with one of these scales, that fits best by least squares. Returns false with fewer
 * than four points, or if all times are equal. `floor` is the minimum noise of the series, so that a perfect fit has a
 * finite BIC. `variance_factor` is the number of correlated points that are worth one independent point.
 */
bool memscope_curve_fit(enum memscope_curve_kind kind, const double *scales, size_t scale_count, const double *times,
                        const double *values, size_t count, double floor, double variance_factor,
                        struct memscope_curve *curve);
