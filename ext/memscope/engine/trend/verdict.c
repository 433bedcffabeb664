#include "trend/verdict.h"

#include "trend/floors.h"
#include "trend/growth.h"
#include "trend/regression.h"
#include "trend/statistics.h"

#include <math.h>
#include <string.h>

#define MEBIBYTE 1048576.0
#define DAY_HOURS 24.0
#define MIN_POINTS 12
#define MIN_HOURS 0.5
/* Growth matters if it is at least this much a day: so many mebibytes, or this share of RSS if that is more. */
#define MIN_GROWTH_PER_DAY 16.0
#define MIN_GROWTH_SHARE 0.02
/* In mebibytes: memory comes in pages of 4 KiB, and no process is more regular than this. */
#define MIN_NOISE 0.1
/* The minimum size of the noise that wanders, as a share of the level, and its time constant. */
#define DRIFT_SHARE 0.005
#define DRIFT_HOURS 1.5
#define MAX_P_VALUE 0.01
/*
 * The largest variance factor. It is computed from the residuals, but the test ranks the points: where growth exceeds
 * the noise, the ranks are less autocorrelated than the residuals.
 */
#define MAX_VARIANCE_FACTOR 6
#define LATEST_POINTS 6
/* Memory is steady only if growth by this share of RSS in twelve points (an hour) would have been detected. */
#define STEADY_SHARE 0.25
#define STEADY_POINTS 12
/* Minimum time slices of a growth that have points. */
#define MIN_PARTS 8
#define MIN_LINE_POINTS 4
/* A rise in the first hours is a warm-up. A later one may come again on another day, this many times as large. */
#define WARM_UP_HOURS 3
#define MIN_RISE_RATIO 2
#define POSITIVES_TO_CALL 2
#define NEGATIVES_TO_CLEAR 3
#define PERSISTENCE_SECONDS (MEMSCOPE_PERSISTENCE_HOURS * 3600)
/* Growth that was found has still persisted if judgements miss it for no longer than this. */
#define SUSPICION_SECONDS (2 * PERSISTENCE_SECONDS)
/*
 * A curve that levels off must be better than a line by this difference of BIC, and may still grow by this share of the
 * limit.
 */
#define MIN_BIC_GAIN 6
#define MAX_REMAINING_SHARE 0.05

struct judgement {
    const struct memscope_trend *trend;
    struct memscope_floors floors;
    struct memscope_regression regression;
    struct memscope_growth growth; /* of RSS, or of the layer that grows alone */
    struct memscope_trend_noise least_noise;
    double level, matters;     /* mebibytes, for `matters` in a day */
    enum memscope_layer alone; /* the layer that grows while RSS does not, or MEMSCOPE_LAYER_NONE */
    double p_value, factor;
};

static const double curve_hours[] = {0.1, 0.25, 0.5, 1, 2, 4, 8};

/* The first point's time is that of its first value. */
static double seconds_at(const struct judgement *judgement, size_t point) {
    return point == 0 ? judgement->floors.began_seconds
                      : judgement->floors.began_seconds + judgement->floors.hours[point] * 3600;
}

static double hours_of(const struct judgement *judgement) {
    return judgement->floors.count == 0 ? 0 : judgement->floors.hours[judgement->floors.count - 1];
}

/* The hours between the newest points or, with fewer than two, those of history/sampler.rb (EPOCH). */
static double interval_of(const struct judgement *judgement) {
    size_t count = judgement->floors.count, taken = count > MIN_POINTS ? MIN_POINTS : count - 1;

    return count < 2 ? 5.0 / 60 : (hours_of(judgement) - judgement->floors.hours[count - 1 - taken]) / (double)taken;
}

static void clear(struct memscope_verdict *verdict) {
    *verdict = (struct memscope_verdict){
        .layer = MEMSCOPE_LAYER_NONE,
        .verdict_figures = memscope_verdict_figures_unknown,
        .since_seconds = NAN,
        .ends_near_bytes = NAN,
        .step_seconds = NAN,
        .step_bytes = NAN,
        .p_value = 1,
    };
    verdict->confidence = 0;
}

/* The slope of the line through some points, and its standard error. */
static double slope_of(const double *hours, const double *values, size_t count, double noise, double *error) {
    double middle = 0, squares = 0, products = 0;

    for (size_t index = 0; index < count; index++)
        middle += hours[index] / (double)count;
    for (size_t index = 0; index < count; index++) {
        squares += (hours[index] - middle) * (hours[index] - middle);
        products += (hours[index] - middle) * values[index];
    }
    *error = noise / sqrt(squares);
    return products / squares;
}

/* The first point that is not before this hour and has enough points for a line on either side. */
static size_t point_at(const double *hours, size_t count, double hour) {
    size_t point = MIN_LINE_POINTS;

    while (point + MIN_LINE_POINTS < count && hours[point] < hour)
        point++;
    return point;
}

/*
 * Returns true if growth at this slope goes on: its rate in the second half is at least half that in the first half,
 * within the errors, and its rate in the last quarter is at least half the slope.
 */
static bool growth_persists(const double *hours, const double *values, size_t count, double slope, double noise) {
    size_t half = point_at(hours, count, (hours[0] + hours[count - 1]) / 2);
    size_t late = point_at(hours, count, (hours[0] + 3 * hours[count - 1]) / 4);
    double first, second, last, error, other_error, errors;

    last = slope_of(hours + late, values + late, count - late, noise, &error);
    first = slope_of(hours, values, half, noise, &error);
    second = slope_of(hours + half, values + half, count - half, noise, &other_error);
    errors = sqrt(error * error / 4 + other_error * other_error); /* hypot would need glibc 2.35 */
    return last >= slope / 2 && second >= first / 2 - errors;
}

/* The standard deviation of points around their line. Sets *factor to the variance factor of their residuals. */
static double noise_beside_line(const double *hours, const double *values, size_t count, double *factor) {
    double remains[MEMSCOPE_PAIRED_POINTS], one = 1, squares = 0;
    struct memscope_curve line = {0};

    memscope_curve_fit(MEMSCOPE_CURVE_LINEAR, &one, 1, hours, values, count, 1, 1, &line);
    for (size_t index = 0; index < count; index++) {
        remains[index] = values[index] - line.start - line.rise * (hours[index] - hours[0]);
        squares += remains[index] * remains[index];
    }
    *factor = fmin(memscope_variance_factor(memscope_autocorrelation(remains, count, 2)), MAX_VARIANCE_FACTOR);
    return sqrt(squares / (double)(count - 2));
}

/* A series without its steps. */
static void take_steps(const struct judgement *judgement, int series, double *values) {
    const struct memscope_growth *growth = &judgement->growth;

    memcpy(values, judgement->floors.values[series], judgement->floors.count * sizeof *values);
    for (size_t step = 0; step < growth->step_count; step++)
        for (size_t point = growth->steps[step].point; point < judgement->floors.count; point++)
            values[point] -= growth->steps[step].height;
}

/*
 * The largest rise in a series before its growth began, without steps and warm-up, in a time no longer than the growth
 * has lasted, such as a day's load.
 */
static double earlier_rise(const struct judgement *judgement, int series) {
    const double *hours = judgement->floors.hours;
    double values[MEMSCOPE_TREND_POINTS] = {0}, most = 0, length = hours_of(judgement) - hours[judgement->growth.onset];
    size_t first = 0;

    take_steps(judgement, series, values);
    while (first < judgement->growth.onset && hours[first] < WARM_UP_HOURS)
        first++;
    for (size_t after = first; after < judgement->growth.onset; after++)
        for (size_t before = after; before-- > first && hours[after] - hours[before] <= length;)
            most = fmax(most, values[after] - values[before]);
    return most;
}

/*
 * Returns true if a series grew by more than MIN_RISE_RATIO times its largest earlier rise, and is higher now than it
 * ever was before its growth began, by more than half of that growth.
 */
static bool exceeds_earlier_rises(const struct judgement *judgement, int series) {
    const double *values = judgement->floors.values[series];
    size_t count = judgement->floors.count, onset = judgement->growth.onset;
    double highest = 0, now = 0,
           grown = judgement->growth.slope * (hours_of(judgement) - judgement->floors.hours[onset]);

    for (size_t point = 2; point < onset; point++)
        highest = fmax(highest, (values[point] + values[point - 1] + values[point - 2]) / 3);
    for (size_t point = count - LATEST_POINTS; point < count; point++)
        now += values[point] / LATEST_POINTS;
    return now - highest > grown / 2 && grown > MIN_RISE_RATIO * earlier_rise(judgement, series);
}

/* Returns true if the fitted series grows without bound by each of several tests. */
static bool grows(struct judgement *judgement, int series) {
    const struct memscope_growth *growth = &judgement->growth;
    double hours[MEMSCOPE_PAIRED_POINTS], values[MEMSCOPE_PAIRED_POINTS];
    size_t count = memscope_growth_alone(&judgement->regression, growth, hours, values);
    double factor = 1, noise = count < MIN_PARTS ? 0 : noise_beside_line(hours, values, count, &factor);

    judgement->factor = factor;
    judgement->p_value = memscope_mann_kendall(values, count, factor);
    if (count < MIN_PARTS || growth->slope < MEMSCOPE_DETECTION_ERRORS * growth->error ||
        growth->slope * DAY_HOURS < judgement->matters)
        return false;
    if (judgement->p_value > MAX_P_VALUE ||
        !growth_persists(hours, values, count, growth->slope, noise * sqrt(factor)) ||
        !exceeds_earlier_rises(judgement, series))
        return false;
    return memscope_least_slope(hours, values, count, 1.5, factor) > 0;
}

static void fit_series(struct judgement *judgement, int series, struct memscope_trend_noise *noise) {
    const struct memscope_floors *floors = &judgement->floors;
    struct memscope_points points = {floors->count, floors->hours, floors->sizes};
    struct memscope_trend_noise least = judgement->least_noise;
    const double *values = series == MEMSCOPE_SERIES_RSS ? judgement->trend->rss : judgement->trend->layers[series];

    least.white = fmax(least.white, memscope_floors_noise(values, judgement->trend->count) / MEBIBYTE);
    memscope_growth_find(&judgement->regression, &points, floors->values[series], judgement->level, &least, noise,
                         &judgement->growth);
}

/* A series' growth from its first third to its last. */
static double growth_of_thirds(const struct judgement *judgement, int series) {
    const double *values = judgement->floors.values[series];
    size_t count = judgement->floors.count, third = count / 3;
    double difference = 0;

    for (size_t index = 0; index < third; index++)
        difference += (values[count - third + index] - values[index]) / (double)third;
    return difference;
}

/* Returns true if RSS is growing, or else one of its layers while another one shrinks. Sets the judgement's growth. */
static bool any_series_grows(struct judgement *judgement, struct memscope_trend_noise *noise) {
    struct memscope_trend_noise before = *noise;
    bool looked = false;

    judgement->alone = MEMSCOPE_LAYER_NONE;
    fit_series(judgement, MEMSCOPE_SERIES_RSS, noise);
    if (grows(judgement, MEMSCOPE_SERIES_RSS))
        return true;
    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++) {
        if (layer == MEMSCOPE_LAYER_UNSHARED || !judgement->floors.known[layer] ||
            growth_of_thirds(judgement, layer) <
                fmax(judgement->matters / 2, 2 * growth_of_thirds(judgement, MEMSCOPE_SERIES_RSS)))
            continue;
        fit_series(judgement, layer, &(struct memscope_trend_noise){0});
        looked = true;
        if (grows(judgement, layer)) {
            judgement->alone = (enum memscope_layer)layer;
            return true;
        }
    }
    if (looked) {
        fit_series(judgement, MEMSCOPE_SERIES_RSS, &before);
        grows(judgement, MEMSCOPE_SERIES_RSS);
    }
    return false;
}

/*
 * The layers' shares of the growth along a direction. The direction is orthogonal to the columns, so the shares exclude
 * the part that the columns explain.
 */
static void share(const struct judgement *judgement, const double *direction, struct memscope_verdict *verdict) {
    const struct memscope_floors *floors = &judgement->floors;
    double rows[MEMSCOPE_REGRESSION_ROWS], parts[MEMSCOPE_SERIES] = {0}, sum = 0;

    for (int series = 0; series < MEMSCOPE_SERIES; series++) {
        if (!floors->known[series] || series == MEMSCOPE_LAYER_UNSHARED || series == MEMSCOPE_LAYER_UNATTRIBUTED)
            continue;
        memscope_regression_series(&judgement->regression, floors->values[series], rows);
        parts[series] = memscope_product(rows, direction, judgement->regression.rows);
        if (series != MEMSCOPE_SERIES_RSS)
            parts[MEMSCOPE_LAYER_UNATTRIBUTED] -= parts[series];
    }
    parts[MEMSCOPE_LAYER_UNATTRIBUTED] += parts[MEMSCOPE_SERIES_RSS];
    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        sum += fmax(parts[layer], 0);
    if (!(sum > 0))
        return;
    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++) {
        verdict->shares[layer] = fmax(parts[layer], 0) / sum;
        if (verdict->layer == MEMSCOPE_LAYER_NONE || verdict->shares[layer] > verdict->shares[verdict->layer])
            verdict->layer = (enum memscope_layer)layer;
    }
}

/* Seconds to the limit at this growth, INFINITY if there is no limit, or RSS is not coming closer to it. */
static double to_limit_seconds(const struct judgement *judgement, double bytes_per_hour) {
    double left = fmax(judgement->trend->limit_bytes - judgement->trend->working_set_bytes, 0);

    if (judgement->trend->limit_bytes <= 0 || judgement->alone != MEMSCOPE_LAYER_NONE || !(bytes_per_hour > 0))
        return INFINITY;
    return left / bytes_per_hour * 3600;
}

static void estimate_eta(const struct judgement *judgement, struct memscope_verdict *verdict) {
    double seconds = to_limit_seconds(judgement, verdict->bytes_per_hour);

    if (isinf(seconds))
        return;
    verdict->eta_seconds = seconds;
    verdict->eta_seconds_low = to_limit_seconds(judgement, verdict->bytes_per_hour_high);
    verdict->eta_seconds_high = to_limit_seconds(judgement, verdict->bytes_per_hour_low);
}

static void report_slope(const struct judgement *judgement, struct memscope_verdict *verdict) {
    const struct memscope_growth *growth = &judgement->growth;

    verdict->bytes_per_hour = growth->slope * MEBIBYTE;
    verdict->bytes_per_hour_low = (growth->slope - 1.96 * growth->error) * MEBIBYTE;
    verdict->bytes_per_hour_high = (growth->slope + 1.96 * growth->error) * MEBIBYTE;
    verdict->p_value = judgement->p_value;
    verdict->since_seconds = seconds_at(judgement, growth->onset);
    verdict->detectable_bytes_per_hour = MEMSCOPE_DETECTION_ERRORS * growth->error_since_start * MEBIBYTE;
}

/* If one or two judgements find no growth, the leak stays in the layer where it was found. */
static void report_leak(const struct judgement *judgement, struct memscope_verdict_memory *memory,
                        struct memscope_verdict *verdict) {
    verdict->kind = MEMSCOPE_VERDICT_LEAK;
    verdict->confidence = 1 - memscope_normal_tail(judgement->growth.slope / judgement->growth.error);
    share(judgement, judgement->growth.direction, verdict);
    if (judgement->alone != MEMSCOPE_LAYER_NONE)
        verdict->layer = judgement->alone;
    if (verdict->grows)
        memory->layer = verdict->layer;
    verdict->layer = memory->layer;
    estimate_eta(judgement, verdict);
}

static double newest_seconds(const struct judgement *judgement) {
    return judgement->trend->seconds[judgement->trend->count - 1];
}

/*
 * The remaining time that growth must persist before it is called a leak. In all, it must persist for
 * PERSISTENCE_SECONDS, or for as long as it would take to reach the limit if that is less.
 */
static double awaited_seconds(const struct judgement *judgement, const struct memscope_verdict_memory *memory,
                              const struct memscope_verdict *verdict) {
    double held = memory->suspected ? newest_seconds(judgement) - memory->suspected_seconds : 0;

    return fmax(fmin(PERSISTENCE_SECONDS, to_limit_seconds(judgement, verdict->bytes_per_hour)) - held, 0);
}

/* Reports the time until a slope since `onset` can be detected. */
static void report_too_early(const struct judgement *judgement, double slope, double onset,
                             struct memscope_verdict *verdict) {
    double interval = interval_of(judgement);
    double hours = memscope_growth_needs(slope, onset, interval, judgement->level, &judgement->growth.noise);

    verdict->kind = MEMSCOPE_VERDICT_TOO_EARLY;
    verdict->needs_seconds = fmax(hours - hours_of(judgement), interval) * 3600;
}

/* The minimum slope that must be detectable before memory is called steady. */
static double steady_slope(const struct judgement *judgement) {
    return STEADY_SHARE * judgement->level / (STEADY_POINTS * interval_of(judgement));
}

static const struct memscope_growth_step *largest_step(const struct memscope_growth *growth) {
    const struct memscope_growth_step *largest = NULL;

    for (size_t index = 0; index < growth->step_count; index++)
        if (largest == NULL || growth->steps[index].height > largest->height)
            largest = &growth->steps[index];
    return largest;
}

/* Reports the largest step up, if it matters. Returns false if there is none. */
static bool report_step(const struct judgement *judgement, struct memscope_verdict *verdict) {
    const struct memscope_growth_step *step = largest_step(&judgement->growth);

    if (step == NULL || step->height < judgement->matters)
        return false;
    verdict->step_seconds = seconds_at(judgement, step->point);
    verdict->step_bytes = step->height * MEBIBYTE;
    return true;
}

/* RSS without its steps: at most MEMSCOPE_PAIRED_POINTS points. */
static size_t without_steps(const struct judgement *judgement, double *hours, double *values) {
    const struct memscope_floors *floors = &judgement->floors;
    size_t together = (floors->count + MEMSCOPE_PAIRED_POINTS - 1) / MEMSCOPE_PAIRED_POINTS, count = 0;

    for (size_t first = 0; first + together <= floors->count; first += together, count++) {
        hours[count] = values[count] = 0;
        for (size_t point = first; point < first + together; point++) {
            hours[count] += floors->hours[point] / (double)together;
            values[count] += floors->values[MEMSCOPE_SERIES_RSS][point] / (double)together;
            for (size_t step = 0; step < judgement->growth.step_count; step++)
                if (point >= judgement->growth.steps[step].point)
                    values[count] -= judgement->growth.steps[step].height / (double)together;
        }
    }
    return count;
}

/* Returns true if RSS grew along a curve that levels off, and reports the curve's end. */
static bool report_filling(const struct judgement *judgement, struct memscope_verdict *verdict) {
    double hours[MEMSCOPE_PAIRED_POINTS], values[MEMSCOPE_PAIRED_POINTS], one = 1, span, more, room;
    size_t count = without_steps(judgement, hours, values), scales = sizeof curve_hours / sizeof *curve_hours;
    struct memscope_curve line, curve, other;
    double floor = judgement->least_noise.white, factor = judgement->factor;
    double horizon = judgement->trend->horizon_seconds > 0 ? judgement->trend->horizon_seconds / 3600 : DAY_HOURS;

    if (count < MIN_PARTS || growth_of_thirds(judgement, MEMSCOPE_SERIES_RSS) < judgement->matters / 4 ||
        !memscope_curve_fit(MEMSCOPE_CURVE_LINEAR, &one, 1, hours, values, count, floor, factor, &line) ||
        !memscope_curve_fit(MEMSCOPE_CURVE_EXPONENTIAL, curve_hours, scales, hours, values, count, floor, factor,
                            &curve) ||
        !memscope_curve_fit(MEMSCOPE_CURVE_LOGARITHMIC, curve_hours, 3, hours, values, count, floor, factor, &other))
        return false;
    if (other.bic < curve.bic)
        curve = other;
    span = hours[count - 1] - hours[0];
    more = curve.rise * (memscope_curve_shape(curve.kind, curve.scale, span + horizon) -
                         memscope_curve_shape(curve.kind, curve.scale, span));
    room = judgement->trend->limit_bytes > 0 ? judgement->trend->limit_bytes / MEBIBYTE : judgement->level;
    if (curve.bic > line.bic - MIN_BIC_GAIN || more > MAX_REMAINING_SHARE * room ||
        curve.rise * memscope_curve_shape(curve.kind, curve.scale, span) < judgement->matters)
        return false;
    verdict->ends_near_bytes =
        (judgement->floors.values[MEMSCOPE_SERIES_RSS][judgement->floors.count - 1] + more) * MEBIBYTE;
    verdict->confidence = 1 / (1 + exp((curve.bic - line.bic) / 2));
    return true;
}

/* Returns true if private memory grew, or is growing, while RSS is not: pages shared after the fork are copied. */
static bool report_unshared(const struct judgement *judgement, struct memscope_verdict *verdict) {
    double lost;

    if (!judgement->floors.known[MEMSCOPE_LAYER_UNSHARED])
        return false;
    lost = growth_of_thirds(judgement, MEMSCOPE_LAYER_UNSHARED);
    if (lost < judgement->matters / 2 || lost < 2 * growth_of_thirds(judgement, MEMSCOPE_SERIES_RSS))
        return false;
    verdict->kind = MEMSCOPE_VERDICT_FILLING;
    verdict->layer = MEMSCOPE_LAYER_UNSHARED;
    verdict->shares[MEMSCOPE_LAYER_UNSHARED] = 1;
    verdict->confidence = 1 - memscope_normal_tail(lost / judgement->growth.noise.white);
    return true;
}

/* Returns true if this is more than half of RSS's growth. */
static bool is_most_of_growth(const struct judgement *judgement, double mebibytes) {
    const double *values = judgement->floors.values[MEMSCOPE_SERIES_RSS];
    size_t count = judgement->floors.count;
    double grown = 0;

    for (size_t point = 0; point < LATEST_POINTS; point++)
        grown += (values[count - 1 - point] - values[point]) / LATEST_POINTS;
    return mebibytes > grown / 2;
}

/* The verdict if nothing grows without bound. */
static void report_no_leak(struct judgement *judgement, const struct memscope_verdict_memory *memory,
                           struct memscope_verdict *verdict) {
    const struct memscope_growth *growth = &judgement->growth;
    double rows[MEMSCOPE_REGRESSION_ROWS];
    bool stepped = report_step(judgement, verdict);

    if (report_unshared(judgement, verdict))
        return;
    if (!(stepped && is_most_of_growth(judgement, verdict->step_bytes / MEBIBYTE)) &&
        report_filling(judgement, verdict)) {
        verdict->kind = MEMSCOPE_VERDICT_FILLING;
        memscope_regression_growth(&judgement->regression, 0, rows);
        judgement->regression.columns = 1;
        memscope_regression_residual(&judgement->regression, rows);
        share(judgement, rows, verdict);
    } else if (stepped) {
        verdict->kind = MEMSCOPE_VERDICT_STEP;
        verdict->confidence = 1 - memscope_normal_tail(verdict->step_bytes / MEBIBYTE / growth->noise.white);
        memscope_regression_step(&judgement->regression, largest_step(growth)->point, rows);
        judgement->regression.columns = MEMSCOPE_REGRESSION_HABITS;
        memscope_regression_residual(&judgement->regression, rows);
        share(judgement, rows, verdict);
    } else if (growth->slope > 2 * growth->error && growth->slope * DAY_HOURS > judgement->matters) {
        report_too_early(judgement, growth->slope, judgement->floors.hours[growth->onset], verdict);
        verdict->needs_seconds += awaited_seconds(judgement, memory, verdict); /* and until the growth has held */
    } else if (verdict->detectable_bytes_per_hour > steady_slope(judgement) * MEBIBYTE) {
        report_too_early(judgement, steady_slope(judgement), 0, verdict);
    } else {
        verdict->kind = MEMSCOPE_VERDICT_STEADY;
        verdict->confidence = 1 - memscope_normal_tail((judgement->matters / DAY_HOURS - growth->slope_since_start) /
                                                       growth->error_since_start);
    }
}

/* Growth is suspected from the first judgement that finds it, until no judgement finds it for SUSPICION_SECONDS. */
static void suspect(double now, bool grows, struct memscope_verdict_memory *memory) {
    if (now - memory->positive_seconds > SUSPICION_SECONDS)
        memory->suspected = false;
    if (!grows)
        return;
    if (!memory->suspected)
        memory->suspected_seconds = now;
    memory->suspected = true;
    memory->positive_seconds = now;
}

static void remember(const struct judgement *judgement, const struct memscope_verdict *verdict,
                     struct memscope_verdict_memory *memory) {
    suspect(newest_seconds(judgement), verdict->grows, memory);
    memory->positives = verdict->grows ? memory->positives + 1 : 0;
    memory->negatives = verdict->grows ? 0 : memory->negatives + 1;
    if (memory->positives >= POSITIVES_TO_CALL && awaited_seconds(judgement, memory, verdict) <= 0)
        memory->leaking = true;
    if (memory->negatives >= NEGATIVES_TO_CLEAR)
        memory->leaking = false;
}

static void judge(struct judgement *judgement, struct memscope_verdict_memory *memory,
                  struct memscope_verdict *verdict) {
    verdict->grows = any_series_grows(judgement, &memory->noise);
    report_slope(judgement, verdict);
    remember(judgement, verdict, memory);
    if (memory->leaking) {
        report_leak(judgement, memory, verdict);
        report_step(judgement, verdict);
    } else if (verdict->grows) {
        verdict->kind = MEMSCOPE_VERDICT_TOO_EARLY;
        verdict->needs_seconds = fmax(awaited_seconds(judgement, memory, verdict), interval_of(judgement) * 3600);
    } else {
        report_no_leak(judgement, memory, verdict);
    }
    if (verdict->kind == MEMSCOPE_VERDICT_TOO_EARLY)
        verdict->bytes_per_hour = verdict->bytes_per_hour_low = verdict->bytes_per_hour_high = NAN;
}

enum memscope_status memscope_verdict_judge(const struct memscope_trend *trend, struct memscope_verdict_memory *memory,
                                            struct memscope_verdict *verdict) {
    struct judgement judgement = {.trend = trend};
    struct memscope_floors *floors = &judgement.floors;

    if (!memscope_trend_is_sound(trend))
        return MEMSCOPE_MALFORMED;
    clear(verdict);
    if (trend->count > 0)
        memscope_floors_take(trend, floors);
    if (floors->count < MIN_POINTS || hours_of(&judgement) < MIN_HOURS) {
        *memory = (struct memscope_verdict_memory){0};
        verdict->needs_seconds =
            fmax(MIN_HOURS - hours_of(&judgement), (MIN_POINTS - (double)floors->count) * interval_of(&judgement)) *
            3600;
        return MEMSCOPE_OK;
    }
    judgement.level = fmax(floors->values[MEMSCOPE_SERIES_RSS][0], MIN_GROWTH_PER_DAY);
    judgement.matters =
        fmax(MIN_GROWTH_PER_DAY, MIN_GROWTH_SHARE * floors->values[MEMSCOPE_SERIES_RSS][floors->count - 1]);
    judgement.least_noise = (struct memscope_trend_noise){MIN_NOISE, DRIFT_SHARE * judgement.level, DRIFT_HOURS};
    judge(&judgement, memory, verdict);
    return MEMSCOPE_OK;
}
