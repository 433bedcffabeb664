/*
 * The regression against what it is made of, and its errors against those of many simulated series. Silent when right.
 */
#include "../expect.h"
#include "random.h"
#include "trend/growth.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define POINTS 100
#define INTERVAL (5.0 / 60)
#define LEVEL 400.0

static double hours[POINTS], sizes[POINTS], values[POINTS];
static const struct memscope_points points = {POINTS, hours, sizes};
static const struct memscope_trend_noise noise = {1.5, 2, 1.5};
static struct memscope_regression regression;
static struct memscope_growth growth;
static uint64_t state = 4711;

/* A level with both kinds of noise, a point each 5 minutes. */
static void simulate(double slope, size_t onset) {
    double wandering = noise.wandering * random_normal(&state), left = exp(-INTERVAL / noise.hours);

    for (size_t point = 0; point < POINTS; point++) {
        hours[point] = INTERVAL * (double)point;
        sizes[point] = 1;
        values[point] = LEVEL + wandering + noise.white * random_normal(&state);
        values[point] += point > onset ? slope * (hours[point] - hours[onset]) : 0;
        wandering = left * wandering + sqrt(1 - left * left) * noise.wandering * random_normal(&state);
    }
}

/* Rows are white: the sum of their squares is the series' squared Mahalanobis distance, by the noise's covariance. */
static void test_whitening(void) {
    double rows[MEMSCOPE_REGRESSION_ROWS], back[POINTS], covariance[8][8], inverse[8][8] = {{0}}, distance = 0;
    struct memscope_points few = {8, hours, sizes};

    simulate(0, 0);
    sizes[2] = 4;
    hours[7] += 1;
    memscope_regression_open(&regression, &few, LEVEL, &noise);
    memscope_regression_series(&regression, values, rows);
    memscope_regression_values(&regression, rows, back);
    for (int row = 0; row < 8; row++) {
        EXPECT(fabs(back[row] - values[row]) < 1e-9);
        inverse[row][row] = 1;
        for (int column = 0; column < 8; column++)
            covariance[row][column] =
                4 * exp(-fabs(hours[row] - hours[column]) / 1.5) + (row == column ? 1.5 * 1.5 / sizes[row] : 0);
    }
    for (int pivot = 0; pivot < 8; pivot++) /* Gauss-Jordan */
        for (int row = 0; row < 8; row++) {
            double factor =
                row == pivot ? 1 - 1 / covariance[pivot][pivot] : covariance[row][pivot] / covariance[pivot][pivot];

            for (int column = 0; column < 8; column++) {
                inverse[row][column] -= factor * (row == pivot ? inverse[row][column] : inverse[pivot][column]);
                covariance[row][column] -=
                    factor * (row == pivot ? covariance[row][column] : covariance[pivot][column]);
            }
        }
    for (int row = 0; row < 8; row++)
        for (int column = 0; column < 8; column++)
            distance += values[row] * inverse[row][column] * values[column];
    EXPECT(fabs(memscope_product(rows, rows, regression.rows) / distance - 1) < 1e-9);
}

static void test_columns(void) {
    double rows[MEMSCOPE_REGRESSION_ROWS];

    simulate(0, 0);
    memscope_regression_open(&regression, &points, LEVEL, &noise);
    EXPECT(regression.columns == MEMSCOPE_REGRESSION_HABITS);
    for (size_t one = 0; one < regression.columns; one++)
        for (size_t other = 0; other <= one; other++)
            EXPECT(fabs(memscope_product(regression.column[one], regression.column[other], regression.rows) -
                        (one == other)) < 1e-6);
    memscope_regression_step(&regression, 0, rows);
    memscope_regression_residual(&regression, rows);
    EXPECT(memscope_product(rows, rows, regression.rows) < 1e-9 && !memscope_regression_add(&regression, rows));
    EXPECT(memscope_regression_parameters(&regression) > 1 && memscope_regression_parameters(&regression) < 13);
}

/* The slope's mean is at most a third too low, and the slope varies by hardly more than its standard error. */
static void test_errors(void) {
    double sum = 0, squares = 0, errors = 0;
    const int rounds = 400;

    for (int round = 0; round < rounds; round++) {
        struct memscope_trend_noise known = noise;

        simulate(60, 0);
        memscope_growth_find(&regression, &points, values, LEVEL, &noise, &known, &growth);
        sum += growth.slope_since_start;
        squares += growth.slope_since_start * growth.slope_since_start;
        errors += growth.error_since_start;
    }
    sum /= rounds;
    /* Warm-up explains a part of the 60, since it is expected to have some size. */
    EXPECT(sum > 40 && sum < 62);
    EXPECT(sqrt(squares / rounds - sum * sum) < 1.1 * errors / rounds);
}

static void test_onset(void) {
    struct memscope_trend_noise known = noise;

    simulate(40, 60);
    memscope_growth_find(&regression, &points, values, LEVEL, &noise, &known, &growth);
    EXPECT(growth.onset >= 52 && growth.onset <= 68);
    EXPECT(fabs(growth.slope - 40) < 10 && growth.slope > 5 * growth.error);
}

static void test_steps(void) {
    struct memscope_trend_noise known = noise;

    simulate(0, 0);
    for (size_t point = 40; point < POINTS; point++)
        values[point] += point < 70 ? 60 : 150;
    memscope_growth_find(&regression, &points, values, LEVEL, &noise, &known, &growth);
    EXPECT(growth.step_count == 2);
    for (size_t step = 0; step < 2; step++)
        EXPECT((growth.steps[step].point == 40 && fabs(growth.steps[step].height - 60) < 10) ||
               (growth.steps[step].point == 70 && fabs(growth.steps[step].height - 90) < 10));
    EXPECT(growth.slope < 5 * growth.error);
}

static void test_needs(void) {
    double fast = memscope_growth_needs(50, 0, INTERVAL, LEVEL, &noise);
    double slow = memscope_growth_needs(5, 0, INTERVAL, LEVEL, &noise);
    double later = memscope_growth_needs(5, 48, INTERVAL, LEVEL, &noise);

    EXPECT(fast >= 0.5 && fast < slow && slow < 100);
    EXPECT(later > 48 && later - 48 < slow); /* what went before is known */
    EXPECT(isinf(memscope_growth_needs(0, 0, INTERVAL, LEVEL, &noise)));
    EXPECT(isinf(memscope_growth_needs(1e-6, 0, INTERVAL, LEVEL, &noise)));
}

int main(void) {
    test_whitening();
    test_columns();
    test_errors();
    test_onset();
    test_steps();
    test_needs();
    return 0;
}
