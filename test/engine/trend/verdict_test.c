/* Verdicts on series whose truth is plain, and on odd and malformed ones. Silent when right. */
#include "../expect.h"
#include "random.h"
#include "trend/verdict.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MIB 1048576.0
#define POINTS 2016
#define EPOCH 300.0
#define STANDING 25 /* judgements until a leak is called: 2 hours after the first */

static double seconds[POINTS], rss[POINTS], objects[POINTS], native[POINTS], copied[POINTS];
static uint64_t state = 88172645463325252u;

/* 400 MiB, half of them objects, with 1 MiB of noise. */
static struct memscope_trend trend_of(size_t count) {
    struct memscope_trend trend = {.count = count, .seconds = seconds, .rss = rss};

    for (size_t point = 0; point < count; point++) {
        seconds[point] = 5000 + EPOCH * (double)point;
        objects[point] = (200 + 0.7 * random_normal(&state)) * MIB;
        native[point] = (150 + 0.7 * random_normal(&state)) * MIB;
        copied[point] = 0;
        rss[point] = objects[point] + native[point] + 50 * MIB;
    }
    trend.layers[MEMSCOPE_LAYER_OBJECTS] = objects;
    trend.layers[MEMSCOPE_LAYER_NATIVE] = native;
    trend.layers[MEMSCOPE_LAYER_UNSHARED] = copied;
    return trend;
}

static void grow(double *layer, size_t from, size_t count, double mib_an_hour) {
    for (size_t point = from; point < count; point++) {
        double bytes = mib_an_hour * MIB * EPOCH / 3600 * (double)(point - from);

        layer[point] += bytes;
        rss[point] += layer == copied ? 0 : bytes;
    }
}

static void step(double *layer, size_t from, size_t count, double mib) {
    for (size_t point = from; point < count; point++) {
        layer[point] += mib * MIB;
        rss[point] += mib * MIB;
    }
}

/* Rises by so much from one point to another, and stays. */
static void ramp(double *layer, size_t from, size_t until, size_t count, double mib) {
    for (size_t point = from; point < count; point++) {
        double bytes = mib * MIB * fmin((double)(point - from) / (double)(until - from), 1);

        layer[point] += bytes;
        rss[point] += bytes;
    }
}

/* The verdict after a judgement at each of the last points. */
static struct memscope_verdict judge_last(struct memscope_trend trend, size_t judgements) {
    struct memscope_verdict_memory memory = {0};
    struct memscope_verdict verdict;
    size_t count = trend.count;

    for (trend.count = count - judgements + 1; trend.count <= count; trend.count++)
        EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
    return verdict;
}

/* The first point, from the twelfth on, at which the verdict is a leak, or the count. */
static size_t called_at(struct memscope_trend trend) {
    struct memscope_verdict_memory memory = {0};
    struct memscope_verdict verdict;
    size_t count = trend.count;

    for (trend.count = 12; trend.count <= count; trend.count++) {
        EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
        if (verdict.kind == MEMSCOPE_VERDICT_LEAK)
            return trend.count - 1;
    }
    return count;
}

static double sum_of_shares(const struct memscope_verdict *verdict) {
    double sum = 0;

    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        sum += verdict->shares[layer];
    return sum;
}

static void test_steady(void) {
    struct memscope_verdict verdict = judge_last(trend_of(POINTS), 3);

    EXPECT(verdict.kind == MEMSCOPE_VERDICT_STEADY && verdict.layer == MEMSCOPE_LAYER_NONE && !verdict.grows);
    EXPECT(sum_of_shares(&verdict) == 0 && verdict.confidence > 0.9 && isnan(verdict.eta_seconds));
    EXPECT(verdict.detectable_bytes_per_hour > 0 && verdict.detectable_bytes_per_hour < 5 * MIB);
}

/* With noise of 12 MiB on 400 MiB, an hour shows no growth below some hundred MiB/h: that is not steady yet. */
static void test_not_yet_steady(void) {
    struct memscope_trend trend = trend_of(POINTS);
    struct memscope_verdict verdict;
    double needs;

    for (size_t point = 0; point < POINTS; point++)
        step(native, point, point + 1, 12 * random_normal(&state));
    trend.count = 14;
    verdict = judge_last(trend, 1);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_TOO_EARLY && !verdict.grows && verdict.confidence == 0);
    EXPECT(verdict.detectable_bytes_per_hour > 100 * MIB);
    needs = verdict.needs_seconds;
    EXPECT(needs > EPOCH && needs < 6 * 3600);
    trend.count += (size_t)(1.5 * needs / EPOCH);
    EXPECT(judge_last(trend, 1).kind == MEMSCOPE_VERDICT_STEADY);
}

static void test_leak(void) {
    struct memscope_trend trend = trend_of(200);
    struct memscope_verdict verdict;

    grow(objects, 0, 200, 15);
    grow(native, 0, 200, 5);
    trend.working_set_bytes = 1000 * MIB;
    trend.limit_bytes = 1200 * MIB;
    verdict = judge_last(trend, STANDING);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_LEAK && verdict.grows && verdict.layer == MEMSCOPE_LAYER_OBJECTS);
    EXPECT(fabs(verdict.bytes_per_hour / MIB - 20) < 2);
    EXPECT(verdict.bytes_per_hour_low < verdict.bytes_per_hour && verdict.bytes_per_hour < verdict.bytes_per_hour_high);
    EXPECT(fabs(verdict.shares[MEMSCOPE_LAYER_OBJECTS] - 0.75) < 0.05 && fabs(sum_of_shares(&verdict) - 1) < 1e-9);
    EXPECT(fabs(verdict.eta_seconds / 36000 - 1) < 0.1); /* 200 MiB left */
    EXPECT(verdict.eta_seconds_low < verdict.eta_seconds && verdict.eta_seconds < verdict.eta_seconds_high);
    EXPECT(verdict.p_value < 0.01 && verdict.confidence > 0.99 && verdict.since_seconds == 5000);
}

/* A leak is called once its growth has held for two hours; then two judgements do not clear it, and three do. */
static void test_hysteresis(void) {
    struct memscope_trend trend = trend_of(200), flat;
    struct memscope_verdict_memory memory = {0};
    struct memscope_verdict verdict;

    grow(objects, 0, 200, 20);
    for (trend.count = 200 - STANDING + 1; trend.count < 200; trend.count++) {
        EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
        EXPECT(verdict.kind == MEMSCOPE_VERDICT_TOO_EARLY && verdict.grows && verdict.confidence == 0);
        EXPECT(isnan(verdict.bytes_per_hour) && isnan(verdict.bytes_per_hour_high));
        EXPECT(fabs(verdict.needs_seconds - EPOCH * (double)(200 - trend.count)) < 1);
    }
    EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_LEAK && isnan(verdict.needs_seconds));
    flat = trend_of(200);
    for (int judgement = 0; judgement < 2; judgement++) {
        EXPECT(memscope_verdict_judge(&flat, &memory, &verdict) == MEMSCOPE_OK);
        EXPECT(verdict.kind == MEMSCOPE_VERDICT_LEAK && !verdict.grows);
    }
    EXPECT(memscope_verdict_judge(&flat, &memory, &verdict) == MEMSCOPE_OK);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_STEADY);
}

/* Growth that would reach the limit within two hours is called once it has held for as long as the limit is ahead. */
static void test_urgency(void) {
    struct memscope_trend trend = trend_of(200);
    struct memscope_verdict_memory memory = {0};
    struct memscope_verdict verdict;

    grow(objects, 0, 200, 20);
    trend.limit_bytes = 1020 * MIB;
    trend.working_set_bytes = 1000 * MIB; /* an hour is left */
    for (trend.count = 200 - STANDING / 2 - 1; trend.count < 197; trend.count++) {
        EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
        EXPECT(verdict.kind == MEMSCOPE_VERDICT_TOO_EARLY && verdict.needs_seconds < 4000);
    }
    for (; trend.count <= 200; trend.count++)
        EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_LEAK && verdict.eta_seconds < 4000);
}

/* Growth that judgements missed for up to four hours has held meanwhile; after that, it is new. */
static void test_missed_growth(void) {
    for (int missed = 3; missed <= 5; missed += 2) {
        struct memscope_trend trend = trend_of(200);
        double then = seconds[199] - 3600 * missed;
        struct memscope_verdict_memory memory = {
            .suspected = true, .suspected_seconds = then, .positive_seconds = then};
        struct memscope_verdict verdict;

        grow(objects, 0, 200, 20);
        EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
        EXPECT(verdict.kind == MEMSCOPE_VERDICT_TOO_EARLY && verdict.grows);
        EXPECT(fabs(verdict.needs_seconds - (missed == 3 ? EPOCH : 7200)) < 1);
        EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
        EXPECT(verdict.kind == (missed == 3 ? MEMSCOPE_VERDICT_LEAK : MEMSCOPE_VERDICT_TOO_EARLY));
    }
}

/* What rises within an hour or two and then stays is not called meanwhile. */
static void test_rise_that_flattens(void) {
    for (size_t points = 3; points <= 24; points += 3) {
        struct memscope_trend trend = trend_of(400);

        ramp(objects, 200, 200 + points, 400, 80);
        EXPECT(called_at(trend) == 400);
    }
}

/* A morning's rise that is larger than that of the day before is no leak; one that goes on is called within a day. */
static void test_rise_of_a_day(void) {
    struct memscope_trend trend = trend_of(700);
    size_t point;

    ramp(native, 100, 148, 700, 40);
    ramp(native, 200, 248, 700, -40);
    ramp(native, 388, 436, 700, 60);
    ramp(native, 488, 536, 700, -60);
    EXPECT(called_at(trend) == 700);
    ramp(native, 488, 536, 700, 60); /* undoes the evening's fall */
    ramp(native, 436, 700, 700, 330);
    point = called_at(trend);
    EXPECT(point > 436 && point < 436 + 288);
}

static void test_step(void) {
    struct memscope_trend trend = trend_of(300);
    struct memscope_verdict verdict;

    step(native, 120, 300, 80);
    verdict = judge_last(trend, 3);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_STEP && verdict.layer == MEMSCOPE_LAYER_NATIVE);
    EXPECT(fabs(verdict.step_bytes / MIB - 80) < 5);
    EXPECT(fabs(verdict.step_seconds - seconds[120]) < 4 * EPOCH);
    EXPECT(verdict.shares[MEMSCOPE_LAYER_NATIVE] > 0.95 && fabs(sum_of_shares(&verdict) - 1) < 1e-9);
}

static void test_filling(void) {
    struct memscope_trend trend = trend_of(200);
    struct memscope_verdict verdict;

    for (size_t point = 0; point < 200; point++) {
        double bytes = 120 * MIB * (1 - exp(-(double)point / 24)); /* 2 hours */

        objects[point] += bytes;
        rss[point] += bytes;
    }
    verdict = judge_last(trend, 3);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_FILLING && verdict.layer == MEMSCOPE_LAYER_OBJECTS);
    EXPECT(fabs(verdict.ends_near_bytes / MIB - 520) < 8);
    EXPECT(fabs(sum_of_shares(&verdict) - 1) < 1e-9);
}

static void test_copy_on_write(void) {
    struct memscope_trend trend = trend_of(300);
    struct memscope_verdict verdict;

    grow(copied, 0, 300, 4);
    verdict = judge_last(trend, 3);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_FILLING && verdict.layer == MEMSCOPE_LAYER_UNSHARED);
    EXPECT(verdict.shares[MEMSCOPE_LAYER_UNSHARED] == 1 && sum_of_shares(&verdict) == 1);
}

/* After a restart, nothing earlier counts. */
static void test_restart(void) {
    struct memscope_trend trend = trend_of(300);

    step(objects, 0, 290, 400);
    EXPECT(judge_last(trend, 3).kind == MEMSCOPE_VERDICT_TOO_EARLY);
    EXPECT(judge_last(trend, 3).needs_seconds > 0);
}

static void test_short(void) {
    struct memscope_trend trend = trend_of(20);
    struct memscope_verdict_memory memory = {0};
    struct memscope_verdict verdict;

    for (trend.count = 0; trend.count < 12; trend.count++) {
        EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
        EXPECT(verdict.kind == MEMSCOPE_VERDICT_TOO_EARLY && verdict.needs_seconds >= 0);
        EXPECT(verdict.confidence == 0 && verdict.layer == MEMSCOPE_LAYER_NONE);
    }
    trend = (struct memscope_trend){0}; /* nothing at all */
    EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
    EXPECT(verdict.kind == MEMSCOPE_VERDICT_TOO_EARLY);
}

static void expect_malformed(const struct memscope_trend *trend) {
    struct memscope_verdict_memory memory = {.positives = 1};
    struct memscope_verdict verdict = {.confidence = 0.5};

    EXPECT(memscope_verdict_judge(trend, &memory, &verdict) == MEMSCOPE_MALFORMED);
    EXPECT(memory.positives == 1 && verdict.confidence == 0.5);
}

static void test_malformed(void) {
    static const double wrong[] = {-1, NAN, INFINITY, -INFINITY, 1e30};
    double *const arrays[] = {rss, objects, native, copied};
    struct memscope_trend trend = trend_of(50);

    for (size_t value = 0; value < sizeof wrong / sizeof *wrong; value++) {
        for (int array = 0; array < 4; array++) {
            trend = trend_of(50);
            arrays[array][value * 12] = wrong[value];
            expect_malformed(&trend);
        }
        trend = trend_of(50);
        trend.limit_bytes = wrong[value];
        expect_malformed(&trend);
        trend.limit_bytes = 0;
        trend.working_set_bytes = wrong[value];
        expect_malformed(&trend);
        trend.working_set_bytes = 0;
        trend.horizon_seconds = wrong[value];
        expect_malformed(&trend);
        seconds[7] = wrong[value];
        trend.horizon_seconds = 0;
        expect_malformed(&trend);
    }
    trend = trend_of(50);
    seconds[20] = seconds[19];
    expect_malformed(&trend);
    trend = trend_of(50);
    trend.rss = NULL;
    expect_malformed(&trend);
    trend = trend_of(50);
    trend.seconds = NULL;
    expect_malformed(&trend);
}

static void expect_no_nan(const struct memscope_verdict *verdict) {
    EXPECT(isfinite(verdict->detectable_bytes_per_hour) ||
           (verdict->kind == MEMSCOPE_VERDICT_TOO_EARLY && isnan(verdict->bytes_per_hour)));
    EXPECT(isfinite(verdict->confidence) && isfinite(verdict->p_value));
    EXPECT(verdict->confidence >= 0 && verdict->confidence <= 1 && verdict->p_value >= 0 && verdict->p_value <= 1);
    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        EXPECT(isfinite(verdict->shares[layer]));
    EXPECT(sum_of_shares(verdict) == 0 || fabs(sum_of_shares(verdict) - 1) < 1e-9);
    if (verdict->kind == MEMSCOPE_VERDICT_LEAK)
        EXPECT(isfinite(verdict->bytes_per_hour) && verdict->layer < MEMSCOPE_LAYERS);
}

/* Constants, zeros, the largest values, perfect lines, spikes, times that crawl or leap. */
static void test_odd_series(void) {
    for (int shape = 0; shape < 8; shape++) {
        struct memscope_trend trend = trend_of(POINTS);
        struct memscope_verdict_memory memory = {0};
        struct memscope_verdict verdict;

        for (size_t point = 0; point < POINTS; point++) {
            const double values[8] = {0,
                                      1e18,
                                      4096 * (double)point,
                                      1e18 * (double)(point % 2),
                                      1e14 * (double)point,
                                      point % 50 == 0 ? 1e12 : 1e8,
                                      1e9,
                                      1e12 - 1e8 * (double)point};

            rss[point] = objects[point] = values[shape];
            native[point] = copied[point] = 0;
            seconds[point] = shape == 6   ? 1e-3 * (double)point
                             : shape == 7 ? 1e12 * (double)point
                                          : 300 * (double)point;
        }
        for (trend.count = 0; trend.count <= POINTS; trend.count += 1 + trend.count / 7) {
            EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
            expect_no_nan(&verdict);
        }
    }
}

/* Points around two moments only, split between them in every way. */
static void test_clustered(void) {
    for (size_t early = 0; early <= 40; early++) {
        struct memscope_trend trend = trend_of(40);
        struct memscope_verdict_memory memory = {0};
        struct memscope_verdict verdict;

        for (size_t point = 0; point < 40; point++) {
            seconds[point] = 1e-3 * (double)point + (point < early ? 0 : 1e5);
            rss[point] += 1e7 * (double)point;
        }
        for (int judgement = 0; judgement < 3; judgement++) {
            EXPECT(memscope_verdict_judge(&trend, &memory, &verdict) == MEMSCOPE_OK);
            expect_no_nan(&verdict);
        }
    }
}

/* The same series gives exactly the same verdict. */
static void test_determined(void) {
    struct memscope_trend trend = trend_of(500);
    struct memscope_verdict_memory memory = {0}, again = {0};
    struct memscope_verdict one, other;

    grow(native, 100, 500, 3);
    memset(&one, 0, sizeof one);
    memset(&other, 0, sizeof other);
    EXPECT(memscope_verdict_judge(&trend, &memory, &one) == MEMSCOPE_OK);
    EXPECT(memscope_verdict_judge(&trend, &again, &other) == MEMSCOPE_OK);
    EXPECT(one.kind == other.kind && one.p_value == other.p_value && one.layer == other.layer);
    EXPECT(memcmp(one.shares, other.shares, sizeof one.shares) == 0 && one.confidence == other.confidence);
}

int main(void) {
    test_steady();
    test_not_yet_steady();
    test_leak();
    test_hysteresis();
    test_urgency();
    test_missed_growth();
    test_rise_that_flattens();
    test_rise_of_a_day();
    test_step();
    test_filling();
    test_copy_on_write();
    test_restart();
    test_short();
    test_malformed();
    test_odd_series();
    test_clustered();
    test_determined();
    return 0;
}
