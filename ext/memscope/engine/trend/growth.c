#include "trend/growth.h"

#include "trend/statistics.h"

#include <math.h>
#include <string.h>

/* Growth may have begun this many points ago, or at the first one. */
static const size_t onsets[] = {12, 18, 26, 36, 48, 62, 80, 100};

#define ONSETS (sizeof onsets / sizeof *onsets)
#define MIN_GROWTH_HOURS 0.5
/* Growth since a later point must last this long: a shorter one may be a warm-up of its own. */
#define MIN_LATER_GROWTH_HOURS 2
/*
 * Growth since a later onset must explain more than growth since the first point, by this many variances of the noise,
 * since there are many onsets to choose from.
 */
#define ONSET_PENALTY 12
/* A step is accepted if it is this many standard deviations high, and most of it happens from one point to the next. */
#define MIN_STEP_HEIGHT 5
#define MIN_STEP_SHARPNESS 0.6
#define STEP_NEIGHBOURS 3
#define PLAN_POINTS 48
#define MONTH_HOURS 720.0

static double squares_of(const double *rows, size_t count) {
    return memscope_product(rows, rows, count);
}

/* Fits growth since one onset. Returns the part of the squares of `left` that this growth explains, perhaps 0. */
static double fit_onset(const struct memscope_regression *regression, size_t onset, const double *left,
                        double *direction) {
    double product, squares;

    memscope_regression_growth(regression, onset, direction);
    memscope_regression_residual(regression, direction);
    squares = squares_of(direction, regression->rows);
    product = memscope_product(direction, left, regression->rows);
    return squares > 1e-12 ? product * product / squares : 0;
}

/* The onset that explains most. `left`: the residual of the columns. */
static void find_onset(const struct memscope_regression *regression, const double *left,
                       struct memscope_growth *growth) {
    const double *hours = regression->points.hours;
    double direction[MEMSCOPE_REGRESSION_ROWS], best;
    size_t count = regression->points.count;

    growth->onset = 0;
    best = fit_onset(regression, 0, left, growth->direction) + ONSET_PENALTY;
    growth->error_since_start = 1 / sqrt(fmax(squares_of(growth->direction, regression->rows), 1e-12));
    growth->slope_since_start = memscope_product(growth->direction, left, regression->rows) *
                                growth->error_since_start * growth->error_since_start;
    for (size_t choice = 0; choice < ONSETS && onsets[choice] + 3 < count; choice++) {
        size_t onset = count - onsets[choice];
        double squares;

        if (hours[count - 1] - hours[onset] < MIN_LATER_GROWTH_HOURS)
            continue;
        squares = fit_onset(regression, onset, left, direction);
        if (squares <= best)
            continue;
        best = squares;
        growth->onset = onset;
        memcpy(growth->direction, direction, regression->rows * sizeof *direction);
    }
    best = fmax(squares_of(growth->direction, regression->rows), 1e-12);
    growth->slope = memscope_product(growth->direction, left, regression->rows) / best;
    growth->error = 1 / sqrt(best);
    memcpy(growth->remains, left, regression->rows * sizeof *left);
    memscope_subtract(growth->remains, growth->direction, growth->slope, regression->rows);
}

static double mean(const double *values, size_t count) {
    double sum = 0;

    for (size_t index = 0; index < count; index++)
        sum += values[index];
    return sum / (double)count;
}

/* The point of the largest jump in a series' residual. Returns 0 if it has too few points. */
static size_t largest_jump(const double *values, size_t count) {
    size_t largest = 0;
    double most = 0;

    for (size_t point = STEP_NEIGHBOURS; point + STEP_NEIGHBOURS <= count; point++) {
        double jump =
            fabs(mean(values + point, STEP_NEIGHBOURS) - mean(values + point - STEP_NEIGHBOURS, STEP_NEIGHBOURS));

        if (jump > most) {
            most = jump;
            largest = point;
        }
    }
    return largest;
}

/*
 * The height of a step in a series: the mean of the points after it, less the mean of the points before it. The step
 * may lie among the values that were averaged into `point`.
 */
static double edge_at(const double *values, size_t count, size_t point) {
    double before = mean(values + point - STEP_NEIGHBOURS, STEP_NEIGHBOURS), edge, next;

    edge = mean(values + point, STEP_NEIGHBOURS) - before;
    if (point + STEP_NEIGHBOURS == count)
        return edge;
    next = mean(values + point + 1, STEP_NEIGHBOURS) - before;
    return fabs(next) > fabs(edge) ? next : edge;
}

/*
 * A step among the values that were averaged into a point is found as two smaller ones, side by side: adds the two up.
 */
static void record_step(struct memscope_growth *growth, size_t point, double height) {
    for (size_t index = 0; index < growth->step_count; index++) {
        struct memscope_growth_step *step = &growth->steps[index];

        if (point > step->point + 1 || step->point > point + 1)
            continue;
        step->point = point < step->point ? point : step->point;
        step->height += height;
        return;
    }
    growth->steps[growth->step_count++] = (struct memscope_growth_step){point, height};
}

/* Returns true and adds the largest jump to the columns if it is a step. `left`: the residual of the columns. */
static bool find_step(struct memscope_regression *regression, const double *series, double *left,
                      struct memscope_growth *growth) {
    double values[MEMSCOPE_TREND_POINTS], step[MEMSCOPE_REGRESSION_ROWS], beside[MEMSCOPE_REGRESSION_ROWS];
    double squares, height, edge;
    size_t point;

    memscope_regression_values(regression, growth->remains, values);
    point = largest_jump(values, regression->points.count);
    if (point == 0)
        return false;
    edge = edge_at(series, regression->points.count, point);
    memscope_regression_step(regression, point, step);
    memscope_regression_residual(regression, step);
    memcpy(beside, step, sizeof beside);
    memscope_subtract(beside, growth->direction,
                      memscope_product(step, growth->direction, regression->rows) /
                          squares_of(growth->direction, regression->rows),
                      regression->rows);
    squares = squares_of(beside, regression->rows);
    height = memscope_product(beside, growth->remains, regression->rows) / squares;
    if (!(height * height * squares > MIN_STEP_HEIGHT * MIN_STEP_HEIGHT) || edge / height < MIN_STEP_SHARPNESS ||
        fabs(height) < MIN_STEP_HEIGHT * growth->noise.white || !memscope_regression_add(regression, step))
        return false;
    record_step(growth, point, height);
    memscope_subtract(left, step, memscope_product(left, step, regression->rows) / squares_of(step, regression->rows),
                      regression->rows);
    return true;
}

/* Fits columns, steps and onset, under growth->noise. */
static void fit(struct memscope_regression *regression, const struct memscope_points *points, const double *values,
                double level, struct memscope_growth *growth) {
    double left[MEMSCOPE_REGRESSION_ROWS];

    memscope_regression_open(regression, points, level, &growth->noise);
    memscope_regression_series(regression, values, left);
    memscope_regression_residual(regression, left);
    growth->step_count = 0;
    find_onset(regression, left, growth);
    while (growth->step_count < MEMSCOPE_REGRESSION_STEPS &&
           regression->columns < MEMSCOPE_REGRESSION_HABITS + MEMSCOPE_REGRESSION_STEPS &&
           find_step(regression, values, left, growth))
        find_onset(regression, left, growth);
}

void memscope_growth_find(struct memscope_regression *regression, const struct memscope_points *points,
                          const double *values, double level, const struct memscope_trend_noise *least,
                          struct memscope_trend_noise *noise, struct memscope_growth *growth) {
    double remains[MEMSCOPE_TREND_POINTS], parameters = 0, larger;

    for (int fits = noise->white > 0 ? 1 : 2; fits > 0; fits--) { /* the first time, also with the least noise */
        growth->noise = noise->white > 0 ? *noise : *least;
        fit(regression, points, values, level, growth);
        memscope_regression_values(regression, growth->remains, remains);
        parameters = memscope_regression_parameters(regression) + 1;
        *noise = memscope_trend_noise_find(points, remains, parameters, least);
    }
    /* Widens the errors if more remains than the noise explains. */
    larger = sqrt(fmax(squares_of(growth->remains, points->count) / fmax((double)points->count - parameters, 1), 1));
    growth->error *= larger;
    growth->error_since_start *= larger;
}

size_t memscope_growth_alone(const struct memscope_regression *regression, const struct memscope_growth *growth,
                             double *hours, double *values) {
    double remains[MEMSCOPE_TREND_POINTS], start = regression->points.hours[growth->onset];
    double length = (regression->points.hours[regression->points.count - 1] - start) / MEMSCOPE_PAIRED_POINTS;
    size_t taken = 0, count = 0, part = 0;

    memscope_regression_values(regression, growth->remains, remains);
    for (size_t point = growth->onset; point < regression->points.count; point++) {
        double hour = regression->points.hours[point];
        size_t now = (size_t)((hour - start) / length);

        if (now > part && now < MEMSCOPE_PAIRED_POINTS) { /* the last point ends the last part */
            part = now;
            taken = 0;
        }
        if (taken++ == 0) {
            hours[count] = values[count] = 0;
            count++;
        }
        hours[count - 1] += (hour - hours[count - 1]) / (double)taken;
        values[count - 1] += (growth->slope * (hour - start) + remains[point] - values[count - 1]) / (double)taken;
    }
    return count;
}

/* The standard error of a slope after this many hours. */
static double planned_error(double hours, double onset, double interval, double level,
                            const struct memscope_trend_noise *noise) {
    struct memscope_regression regression;
    double times[PLAN_POINTS], sizes[PLAN_POINTS], direction[MEMSCOPE_REGRESSION_ROWS];
    struct memscope_points points = {PLAN_POINTS, times, sizes};
    size_t before = onset > 0 ? PLAN_POINTS / 3 : 0, after = PLAN_POINTS - before;

    for (size_t point = 0; point < PLAN_POINTS; point++) {
        double first = point < before ? 0 : onset, length = point < before ? onset : hours - onset;
        double of = (double)(point < before ? before : after),
               number = (double)(point < before ? point : point - before);

        times[point] = first + length * (number + 0.5) / of;
        sizes[point] = fmax(length / interval / of, 0.01);
    }
    memscope_regression_open(&regression, &points, level, noise);
    memscope_regression_growth(&regression, before, direction);
    memscope_regression_residual(&regression, direction);
    return 1 / sqrt(fmax(squares_of(direction, regression.rows), 1e-12));
}

double memscope_growth_needs(double slope, double onset, double interval, double level,
                             const struct memscope_trend_noise *noise) {
    double low = fmax(onset > 0 ? MIN_LATER_GROWTH_HOURS : MIN_GROWTH_HOURS, 12 * interval), high = MONTH_HOURS;

    if (!(slope > 0) || planned_error(onset + high, onset, interval, level, noise) * MEMSCOPE_DETECTION_ERRORS > slope)
        return INFINITY;
    if (planned_error(onset + low, onset, interval, level, noise) * MEMSCOPE_DETECTION_ERRORS <= slope)
        return onset + low;
    while (high > 1.15 * low) {
        double middle = sqrt(low * high);

        *(planned_error(onset + middle, onset, interval, level, noise) * MEMSCOPE_DETECTION_ERRORS <= slope ? &high
                                                                                                            : &low) =
            middle;
    }
    return onset + high;
}
