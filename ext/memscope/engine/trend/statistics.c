#include "trend/statistics.h"

#include <math.h>
#include <string.h>

#define MAX_PAIRS (MEMSCOPE_PAIRED_POINTS * (MEMSCOPE_PAIRED_POINTS - 1) / 2)
/* The standard deviation of normal noise divided by the median of its absolute values. */
#define SIGMA_OF_MEDIAN 1.4826
#define MAX_AUTOCORRELATION 0.97

static void swap(double *one, double *other) {
    double value = *one;

    *one = *other;
    *other = value;
}

/* Hoare's selection, with the median of three as pivot: linear on sorted values and on equal ones. */
double memscope_ranked(double *values, size_t count, size_t rank) {
    size_t low = 0, high = count - 1;

    while (low < high) {
        size_t middle = low + (high - low) / 2, left = low, right = high;
        double pivot;

        if (values[middle] < values[low])
            swap(&values[middle], &values[low]);
        if (values[high] < values[low])
            swap(&values[high], &values[low]);
        if (values[high] < values[middle])
            swap(&values[high], &values[middle]);
        pivot = values[middle];
        while (left <= right) {
            while (values[left] < pivot)
                left++;
            while (values[right] > pivot)
                right--;
            if (left > right)
                break;
            swap(&values[left++], &values[right]);
            if (right-- == 0)
                break;
        }
        if (rank <= right && right < high)
            high = right;
        else if (rank >= left)
            low = left;
        else
            break;
    }
    return values[rank];
}

double memscope_median(double *values, size_t count) {
    double upper, lower;

    if (count == 0)
        return 0;
    upper = memscope_ranked(values, count, count / 2);
    if (count % 2 == 1)
        return upper;
    lower = values[0];
    for (size_t index = 1; index < count / 2; index++)
        lower = fmax(lower, values[index]);
    return (lower + upper) / 2;
}

double memscope_normal_tail(double z) {
    return erfc(z / sqrt(2)) / 2;
}

double memscope_noise(const double *values, size_t count, double *room) {
    for (size_t index = 2; index < count; index++)
        room[index - 2] = fabs(values[index] - 2 * values[index - 1] + values[index - 2]);
    return count < 3 ? 0 : SIGMA_OF_MEDIAN / sqrt(6) * memscope_median(room, count - 2);
}

double memscope_autocorrelation(const double *values, size_t count, double parameters) {
    double products = 0, squares = 0, correlation;

    for (size_t index = 0; index < count; index++) {
        squares += values[index] * values[index];
        if (index > 0)
            products += values[index] * values[index - 1];
    }
    if (squares <= 0)
        return 0;
    correlation = products / squares;
    correlation += (parameters + 3 * correlation) / (double)count;
    return fmin(fmax(correlation, 0), MAX_AUTOCORRELATION);
}

double memscope_variance_factor(double autocorrelation) {
    return (1 + autocorrelation) / (1 - autocorrelation);
}

/* The variance of Kendall's score of this many points that are all different. */
static double score_variance(double count) {
    return count * (count - 1) * (2 * count + 5) / 18;
}

double memscope_least_slope(const double *times, const double *values, size_t count, double z, double variance_factor) {
    double slopes[MAX_PAIRS], below;
    size_t pairs = 0;

    for (size_t later = 1; later < count; later++)
        for (size_t earlier = 0; earlier < later; earlier++)
            slopes[pairs++] = (values[later] - values[earlier]) / (times[later] - times[earlier]);
    below = ((double)pairs - z * sqrt(score_variance((double)count) * variance_factor)) / 2;
    return pairs == 0 ? 0 : memscope_ranked(slopes, pairs, (size_t)fmax(below, 0));
}

/* The reduction of the score's variance by ties. Reorders the values. */
static double variance_of_ties(double *values, size_t count) {
    double variance = 0;

    for (size_t index = 1; index < count; index++) { /* insertion: the series are short, and nearly sorted */
        double value = values[index];
        size_t at = index;

        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
    for (size_t first = 0, after; first < count; first = after) {
        for (after = first + 1; after < count && values[after] <= values[first];)
            after++;
        variance += score_variance((double)(after - first));
    }
    return variance;
}

double memscope_mann_kendall(const double *values, size_t count, double variance_factor) {
    double sorted[MEMSCOPE_PAIRED_POINTS], variance;
    int score = 0;

    for (size_t later = 1; later < count; later++)
        for (size_t earlier = 0; earlier < later; earlier++)
            score += (values[later] > values[earlier]) - (values[later] < values[earlier]);
    memcpy(sorted, values, count * sizeof *sorted);
    variance = (score_variance((double)count) - variance_of_ties(sorted, count)) * variance_factor;
    if (variance <= 0)
        return 1;
    /* Continuity correction: the score is a whole number, so it is moved by one towards 0. */
    return memscope_normal_tail((score - (score > 0) + (score < 0)) / sqrt(variance));
}

double memscope_curve_shape(enum memscope_curve_kind kind, double scale, double time) {
    switch (kind) {
    case MEMSCOPE_CURVE_EXPONENTIAL:
        return 1 - exp(-time / scale);
    case MEMSCOPE_CURVE_LOGARITHMIC:
        return log(1 + time / scale);
    default:
        return time;
    }
}

/* The line through points (shape, value). */
static bool fit_line(const double *shapes, const double *values, size_t count, struct memscope_curve *curve,
                     double *squares) {
    double mean_shape = 0, mean_value = 0, spread = 0, product = 0;

    for (size_t index = 0; index < count; index++) {
        mean_shape += shapes[index] / (double)count;
        mean_value += values[index] / (double)count;
    }
    for (size_t index = 0; index < count; index++) {
        spread += (shapes[index] - mean_shape) * (shapes[index] - mean_shape);
        product += (shapes[index] - mean_shape) * (values[index] - mean_value);
    }
    if (!(spread > 0))
        return false;
    curve->rise = product / spread;
    curve->start = mean_value - curve->rise * mean_shape;
    *squares = 0;
    for (size_t index = 0; index < count; index++)
        *squares += pow(values[index] - curve->start - curve->rise * shapes[index], 2);
    return true;
}

bool memscope_curve_fit(enum memscope_curve_kind kind, const double *scales, size_t scale_count, const double *times,
                        const double *values, size_t count, double floor, double variance_factor,
                        struct memscope_curve *curve) {
    double shapes[MEMSCOPE_PAIRED_POINTS], least = INFINITY;
    double independent = (double)count / variance_factor, parameters = kind == MEMSCOPE_CURVE_LINEAR ? 2 : 3;

    for (size_t choice = 0; count >= 4 && choice < scale_count; choice++) {
        struct memscope_curve tried = {.kind = kind, .scale = scales[choice]};
        double squares;

        for (size_t index = 0; index < count; index++)
            shapes[index] = memscope_curve_shape(kind, tried.scale, times[index] - times[0]);
        if (!fit_line(shapes, values, count, &tried, &squares) || squares >= least)
            continue;
        least = squares;
        *curve = tried;
    }
    if (!isfinite(least))
        return false;
    curve->bic = independent * log(least / (double)count + floor * floor) + parameters * log((double)count);
    return true;
}
