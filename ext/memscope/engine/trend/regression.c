#include "trend/regression.h"

#include <math.h>
#include <string.h>

#define TURN 6.283185307179586

/*
 * Habits are the movements of a healthy process's memory around its level. These are their expected sizes, as shares of
 * the level.
 */
static const double sizes_of_habits[MEMSCOPE_REGRESSION_HABITS - 1] = {
    0.025, 0.025,                /* a wave a day, begun at any time: sine, cosine */
    0.01,  0.01,                 /* two waves a day */
    0.015, 0.015,                /* a wave a week */
    0.2,   0.3,   0.4, 0.4, 0.4, /* warm-ups with time constants of 9 hours, 3 hours, 1 hour, … */
    0.05,                        /* logarithmic growth, on a scale of 9 minutes */
};

/* The shapes of all habits at one point in time, computed with few calls of the C library's slow functions. */
static void habits_at(double hours, double *shapes) {
    double sine = sin(TURN / 24 * hours), cosine = cos(TURN / 24 * hours), left = exp(-hours / 9);

    *shapes++ = sine;
    *shapes++ = cosine;
    *shapes++ = 2 * sine * cosine;
    *shapes++ = cosine * cosine - sine * sine;
    *shapes++ = sin(TURN / 168 * hours);
    *shapes++ = cos(TURN / 168 * hours);
    for (int thirds = 0; thirds < 5; thirds++, left = left * left * left)
        *shapes++ = 1 - left;
    *shapes = log(1 + hours / 0.15);
}

double memscope_product(const double *one, const double *other, size_t count) {
    double sums[4] = {0, 0, 0, 0};
    size_t index = 0;

    for (; index + 4 <= count; index += 4) /* four sums, so that no addition waits for the one before */
        for (size_t lane = 0; lane < 4; lane++)
            sums[lane] += one[index + lane] * other[index + lane];
    for (; index < count; index++)
        sums[0] += one[index] * other[index];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

void memscope_subtract(double *restrict rows, const double *restrict from, double factor, size_t count) {
    for (size_t index = 0; index < count; index++)
        rows[index] -= factor * from[index];
}

/* The share of the wandering noise that is left at the next point. */
static double left_after(const struct memscope_points *points, size_t point, double hours) {
    return point + 1 < points->count ? exp(-(points->hours[point + 1] - points->hours[point]) / hours) : 0;
}

/* The Kalman filter of the wandering noise. */
static void open_noise(struct memscope_regression *regression, const struct memscope_trend_noise *noise) {
    double wandering = noise->wandering * noise->wandering, uncertain = wandering;

    for (size_t point = 0; point < regression->points.count; point++) {
        double variance = uncertain + noise->white * noise->white / regression->points.sizes[point];
        double left = left_after(&regression->points, point, noise->hours);

        regression->scale[point] = 1 / sqrt(variance);
        regression->gain[point] = uncertain / variance;
        regression->left[point] = left;
        uncertain *= 1 - regression->gain[point];
        uncertain = left * left * uncertain + (1 - left * left) * wandering;
    }
}

/* Whitens the values from a point on, in place. The values before are 0. */
static void whiten(const struct memscope_regression *regression, size_t first, double *rows) {
    double expected = 0;

    for (size_t point = first; point < regression->points.count; point++) {
        double new = rows[point] - expected;

        rows[point] = new * regression->scale[point];
        expected = regression->left[point] * (expected + regression->gain[point] * new);
    }
}

void memscope_regression_values(const struct memscope_regression *regression, const double *rows, double *values) {
    double expected = 0;

    for (size_t point = 0; point < regression->points.count; point++) {
        double new = rows[point] / regression->scale[point];

        values[point] = expected + new;
        expected = regression->left[point] * (expected + regression->gain[point] * new);
    }
}

void memscope_regression_residual(const struct memscope_regression *regression, double *rows) {
    for (size_t column = 0; column < regression->columns; column++) {
        const double *from = regression->column[column];

        memscope_subtract(rows, from, memscope_product(rows, from, regression->rows), regression->rows);
    }
}

bool memscope_regression_add(struct memscope_regression *regression, const double *rows) {
    double squares = memscope_product(rows, rows, regression->rows), *column = regression->column[regression->columns];

    if (!(squares > 1e-12))
        return false;
    for (size_t row = 0; row < regression->rows; row++)
        column[row] = rows[row] / sqrt(squares);
    regression->columns++;
    return true;
}

void memscope_regression_open(struct memscope_regression *regression, const struct memscope_points *points,
                              double level, const struct memscope_trend_noise *noise) {
    double rows[MEMSCOPE_REGRESSION_ROWS], shapes[MEMSCOPE_TREND_POINTS][MEMSCOPE_REGRESSION_HABITS - 1];
    size_t count = points->count;

    regression->points = *points;
    regression->rows = count + MEMSCOPE_REGRESSION_HABITS - 1;
    regression->columns = 0;
    open_noise(regression, noise);
    memscope_regression_step(regression, 0, rows);
    memscope_regression_add(regression, rows);
    for (size_t point = 0; point < count; point++)
        habits_at(points->hours[point] - points->hours[0], shapes[point]);
    for (size_t habit = 0; habit < MEMSCOPE_REGRESSION_HABITS - 1; habit++) {
        memset(rows + count, 0, (regression->rows - count) * sizeof *rows);
        for (size_t point = 0; point < count; point++)
            rows[point] = shapes[point][habit];
        whiten(regression, 0, rows);
        rows[count + habit] = 1 / (sizes_of_habits[habit] * level);
        memscope_regression_residual(regression, rows);
        memscope_regression_add(regression, rows);
    }
}

void memscope_regression_series(const struct memscope_regression *regression, const double *values, double *rows) {
    memcpy(rows, values, regression->points.count * sizeof *rows);
    memset(rows + regression->points.count, 0, (regression->rows - regression->points.count) * sizeof *rows);
    whiten(regression, 0, rows);
}

void memscope_regression_growth(const struct memscope_regression *regression, size_t onset, double *rows) {
    const double *hours = regression->points.hours;

    memset(rows, 0, regression->rows * sizeof *rows);
    for (size_t point = onset; point < regression->points.count; point++)
        rows[point] = hours[point] - hours[onset];
    whiten(regression, onset, rows);
}

void memscope_regression_step(const struct memscope_regression *regression, size_t first, double *rows) {
    memset(rows, 0, regression->rows * sizeof *rows);
    for (size_t point = first; point < regression->points.count; point++)
        rows[point] = 1;
    whiten(regression, first, rows);
}

double memscope_regression_parameters(const struct memscope_regression *regression) {
    double parameters = 0;

    for (size_t column = 0; column < regression->columns; column++)
        parameters +=
            memscope_product(regression->column[column], regression->column[column], regression->points.count);
    return parameters;
}

/*
 * Sizes of the wandering noise, as multiples of its minimum. Each is a chain of divisions, so they are tried side by
 * side.
 */
static const double sizes[] = {1, 1.8, 3.2, 5.6, 10};

enum { SIZES = sizeof sizes / sizeof *sizes };

/* -2 ln of the likelihood of values under each noise, up to a constant. left: by point, from left_after. */
static void unlikelihoods(const struct memscope_points *points, const double *values, const double *left,
                          const struct memscope_trend_noise *noises, double *sums) {
    double white[SIZES], wandering[SIZES], uncertain[SIZES], expected[SIZES], products[SIZES];

    for (int size = 0; size < SIZES; size++) {
        white[size] = noises[size].white * noises[size].white;
        uncertain[size] = wandering[size] = noises[size].wandering * noises[size].wandering;
        expected[size] = sums[size] = 0;
        products[size] = 1;
    }
    for (size_t point = 0; point < points->count; point++) {
        double kept = left[point] * left[point], share = 1 / points->sizes[point];

        for (int size = 0; size < SIZES; size++) {
            double part = 1 / (uncertain[size] + white[size] * share), new = values[point] - expected[size];

            sums[size] += new *new *part;
            products[size] *= part;
            expected[size] = left[point] * (expected[size] + uncertain[size] * part * new);
            uncertain[size] *= kept * white[size] * share * part;
            uncertain[size] += (1 - kept) * wandering[size];
        }
        for (int size = 0; point % 8 == 7 && size < SIZES; size++) { /* one logarithm for many points */
            sums[size] -= log(products[size]);
            products[size] = 1;
        }
    }
    for (int size = 0; size < SIZES; size++)
        sums[size] -= log(products[size]);
}

struct memscope_trend_noise memscope_trend_noise_find(const struct memscope_points *points, const double *values,
                                                      double parameters, const struct memscope_trend_noise *least) {
    static const double times[] = {0.8, 2.5, 8};
    double left[MEMSCOPE_TREND_POINTS] = {0}, sums[SIZES], most = INFINITY, count = (double)points->count;
    double larger = sqrt(count / fmax(count - parameters, count / 3)), white = least->white * least->white;
    struct memscope_trend_noise found = *least, tried[SIZES];

    for (size_t time = 0; time < sizeof times / sizeof *times; time++) {
        for (size_t point = 0; point < points->count; point++)
            left[point] = left_after(points, point, times[time]);
        for (int size = 0; size < SIZES; size++) { /* neighbours differ by both kinds of noise */
            double wandering = sizes[size] * least->wandering;
            double rest = white - wandering * wandering * (1 - left[points->count - 2]);

            tried[size] = (struct memscope_trend_noise){sqrt(fmax(rest, 0.04 * white)), wandering, times[time]};
        }
        unlikelihoods(points, values, left, tried, sums);
        for (int size = 0; size < SIZES; size++) {
            if (sums[size] >= most)
                continue;
            most = sums[size];
            found = tried[size];
        }
    }
    found.white *= larger;
    found.wandering *= larger;
    return found;
}
