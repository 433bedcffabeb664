/* Statistics against figures computed by hand, textbooks, and naive second implementations. Silent when right. */
#include "../expect.h"
#include "random.h"
#include "trend/statistics.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define NEAR(one, other, by) (fabs((one) - (other)) <= (by))

static uint64_t state = 1;

static int by_value(const void *one, const void *other) {
    double left = *(const double *)one, right = *(const double *)other;

    return (left > right) - (left < right);
}

static void test_ranks(void) {
    double values[41], sorted[41], copy[41];

    for (int round = 0; round < 2000; round++) {
        size_t count = 1 + (size_t)(random_uniform(&state) * 41);

        for (size_t index = 0; index < count; index++)
            sorted[index] = values[index] = floor(random_uniform(&state) * (round % 2 ? 4 : 1000));
        qsort(sorted, count, sizeof *sorted, by_value);
        for (size_t rank = 0; rank < count; rank++) {
            memcpy(copy, values, sizeof copy);
            EXPECT(memscope_ranked(copy, count, rank) == sorted[rank]);
            for (size_t index = 0; index < rank; index++)
                EXPECT(copy[index] <= sorted[rank]);
            for (size_t index = rank; index < count; index++)
                EXPECT(copy[index] >= sorted[rank]);
        }
        memcpy(copy, values, sizeof copy);
        EXPECT(memscope_median(copy, count) == (sorted[(count - 1) / 2] + sorted[count / 2]) / 2);
    }
    EXPECT(memscope_median(values, 0) == 0);
}

static void test_normal_tail(void) {
    EXPECT(NEAR(memscope_normal_tail(0), 0.5, 1e-12));
    EXPECT(NEAR(memscope_normal_tail(1.959963985), 0.025, 1e-9));
    EXPECT(NEAR(memscope_normal_tail(-2.326347874), 0.99, 1e-9));
}

static void test_noise(void) {
    double values[4000], room[4000];

    for (int index = 0; index < 4000; index++)
        values[index] = 3 * random_normal(&state) + 0.01 * index + (index > 2000 ? 500 : 0);
    EXPECT(NEAR(memscope_noise(values, 4000, room), 3, 0.2));
    EXPECT(memscope_noise(values, 1, room) == 0);
}

static void test_autocorrelation(void) {
    double values[20000], last = 0;
    double alternating[4] = {1, -1, 1, -1}, flat[4] = {0, 0, 0, 0}, same[4] = {1, 1, 1, 1};

    for (int index = 0; index < 20000; index++)
        values[index] = last = 0.8 * last + random_normal(&state);
    EXPECT(NEAR(memscope_autocorrelation(values, 20000, 1), 0.8, 0.02));
    EXPECT(memscope_autocorrelation(alternating, 4, 0) == 0);
    EXPECT(memscope_autocorrelation(flat, 4, 1) == 0);
    EXPECT(memscope_autocorrelation(same, 4, 0) == 0.97); /* 3/4, and 9/16 for the shortness */
    EXPECT(NEAR(memscope_variance_factor(0.5), 3, 1e-12));
}

static double most_slope(const double *times, const double *values, size_t count, double z, double factor) {
    double fallen[64];

    for (size_t index = 0; index < count; index++)
        fallen[index] = -values[index];
    return -memscope_least_slope(times, fallen, count, z, factor);
}

/* Sen (1968), and a naive median of all slopes. */
static void test_least_slope(void) {
    double times[7] = {1, 2, 3, 4, 10, 12, 18}, values[7] = {9, 15, 19, 20, 45, 55, 78};
    double low = memscope_least_slope(times, values, 7, 1.96, 1), high = most_slope(times, values, 7, 1.96, 1);

    EXPECT(low >= 3.7 && low < 3.99 && high > 3.99 && high <= 4.75); /* Hollander & Wolfe, table 9.1 */
    EXPECT(NEAR(memscope_least_slope(times, values, 7, 0, 1), 3.99, 0.03));
    for (int round = 0; round < 300; round++) {
        double moments[30], heights[30], slopes[435];
        size_t count = 2 + (size_t)(random_uniform(&state) * 28), pairs = 0;

        for (size_t index = 0; index < count; index++) {
            moments[index] = (double)index + random_uniform(&state) * 0.9;
            heights[index] = floor(10 * random_uniform(&state));
            for (size_t earlier = 0; earlier < index; earlier++)
                slopes[pairs++] = (heights[index] - heights[earlier]) / (moments[index] - moments[earlier]);
        }
        qsort(slopes, pairs, sizeof *slopes, by_value);
        EXPECT(memscope_least_slope(moments, heights, count, 0, 1) == slopes[pairs / 2]);
        low = memscope_least_slope(moments, heights, count, 2, 1 + 4 * random_uniform(&state));
        EXPECT(low >= slopes[0] && low <= slopes[pairs / 2]);
        EXPECT(memscope_least_slope(moments, heights, count, 1e9, 1) == slopes[0]);
    }
    EXPECT(memscope_least_slope(times, values, 1, 2, 1) == 0);
}

/* The interval at 1.96 holds the true slope in about 95 of 100 series. */
static void test_interval_of_slopes(void) {
    int held = 0;

    for (int round = 0; round < 2000; round++) {
        double times[20], values[20];

        for (int index = 0; index < 20; index++) {
            times[index] = index;
            values[index] = 0.5 * index + random_normal(&state);
        }
        held +=
            memscope_least_slope(times, values, 20, 1.96, 1) <= 0.5 && most_slope(times, values, 20, 1.96, 1) >= 0.5;
    }
    EXPECT(held > 1850 && held < 1970);
}

static void test_mann_kendall(void) {
    double rising[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, same[5] = {7, 7, 7, 7, 7}, ties[6] = {1, 1, 2, 2, 3, 3};
    int small = 0;

    /* S = 45, variance 125: z = 44 / 11.18 */
    EXPECT(NEAR(memscope_mann_kendall(rising, 10, 1), memscope_normal_tail(3.93548), 1e-6));
    EXPECT(NEAR(memscope_mann_kendall(rising, 10, 4), memscope_normal_tail(3.93548 / 2), 1e-5));
    EXPECT(memscope_mann_kendall(same, 5, 1) == 1);
    EXPECT(memscope_mann_kendall(same, 0, 1) == 1);
    /* S = 12, variance (6*5*17 - 3 * 2*1*9) / 18 = 25.33 */
    EXPECT(NEAR(memscope_mann_kendall(ties, 6, 1), memscope_normal_tail(11 / sqrt(25.0 + 1.0 / 3)), 1e-9));
    for (int round = 0; round < 4000; round++) {
        double values[30];

        for (int index = 0; index < 30; index++)
            values[index] = random_normal(&state);
        small += memscope_mann_kendall(values, 30, 1) < 0.05;
    }
    EXPECT(small > 140 && small < 260);
}

static void test_curves(void) {
    double times[60], line[60], saturating[60], logarithmic[60], scales[3] = {0.5, 2, 8}, one = 1;
    struct memscope_curve curve, other;

    for (int index = 0; index < 60; index++) {
        times[index] = 100 + index / 10.0;
        line[index] = 7 + 3 * (times[index] - 100);
        saturating[index] = 50 + 20 * (1 - exp(-(times[index] - 100) / 2));
        logarithmic[index] = 5 + 4 * log(1 + (times[index] - 100) / 0.5);
    }
    EXPECT(memscope_curve_fit(MEMSCOPE_CURVE_LINEAR, &one, 1, times, line, 60, 0.01, 1, &curve));
    EXPECT(NEAR(curve.start, 7, 1e-9) && NEAR(curve.rise, 3, 1e-9));
    EXPECT(memscope_curve_fit(MEMSCOPE_CURVE_EXPONENTIAL, scales, 3, times, saturating, 60, 0.01, 1, &curve));
    EXPECT(curve.scale == 2 && NEAR(curve.start, 50, 1e-6) && NEAR(curve.rise, 20, 1e-6));
    EXPECT(memscope_curve_fit(MEMSCOPE_CURVE_LINEAR, &one, 1, times, saturating, 60, 0.01, 1, &other));
    EXPECT(curve.bic < other.bic - 100);
    EXPECT(memscope_curve_fit(MEMSCOPE_CURVE_LOGARITHMIC, scales, 3, times, logarithmic, 60, 0.01, 1, &curve));
    EXPECT(curve.scale == 0.5 && NEAR(curve.start, 5, 1e-6) && NEAR(curve.rise, 4, 1e-6));
    EXPECT(memscope_curve_fit(MEMSCOPE_CURVE_EXPONENTIAL, scales, 3, times, line, 60, 0.01, 1, &curve));
    EXPECT(memscope_curve_fit(MEMSCOPE_CURVE_LINEAR, &one, 1, times, line, 60, 0.01, 1, &other));
    EXPECT(other.bic < curve.bic - 6);
    EXPECT(!memscope_curve_fit(MEMSCOPE_CURVE_LINEAR, &one, 1, times, line, 3, 0.01, 1, &curve));
}

int main(void) {
    test_ranks();
    test_normal_tail();
    test_noise();
    test_autocorrelation();
    test_least_slope();
    test_interval_of_slopes();
    test_mann_kendall();
    test_curves();
    return 0;
}
