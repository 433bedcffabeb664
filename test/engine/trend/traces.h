/*
 * Memory of processes over days, with known truth: what a verdict must call a leak, and what it must not. Each trace is
 * made of a process's layers, what happens to them, and the noise of floors: values resemble those before, a floor is
 * not always read right after a major GC, what leaves the objects stays as free slots for a while.
 *
 * MiB and hours. Deterministic by generator and seed.
 */
#ifndef TRACES_H
#define TRACES_H

#include "random.h"
#include "trend/verdict.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MOST_POINTS 4100
#define EPOCH_HOURS (5.0 / 60)
#define BYTES_OF_MIB 1048576.0

struct trace {
    size_t count;
    double hours[MOST_POINTS];
    double layers[MEMSCOPE_LAYERS][MOST_POINTS];
    double file_cache[MOST_POINTS]; /* in the working set, and not in RSS */
    double base, limit;
    /* The truth. */
    bool leaks;
    double began, slope;
    enum memscope_layer layer;
    double noise;       /* of a point, as it counts for a slope: autocorrelation included */
    double burst_hours; /* how long a leak in bursts cannot be told from a few bursts without a leak */
    uint64_t state;
};

static double uniform(struct trace *trace) {
    return random_uniform(&trace->state);
}

static double between(struct trace *trace, double low, double high) {
    return low + (high - low) * uniform(trace);
}

/* As likely between 1 and 2 as between 10 and 20. */
static double scale_between(struct trace *trace, double low, double high) {
    return low * pow(high / low, uniform(trace));
}

static double exponential(struct trace *trace, double mean) {
    return -mean * log(1 - uniform(trace));
}

static double normal(struct trace *trace) {
    return random_normal(&trace->state);
}

/* --- What happens to a layer */

static void add_warm_up(struct trace *trace, int layer, double size, double scale, double from) {
    for (size_t point = 0; point < trace->count; point++)
        if (trace->hours[point] > from)
            trace->layers[layer][point] += size * (1 - exp(-(trace->hours[point] - from) / scale));
}

static void add_logarithm(struct trace *trace, int layer, double size, double scale) {
    for (size_t point = 0; point < trace->count; point++)
        trace->layers[layer][point] += size * log(1 + trace->hours[point] / scale);
}

static void add_step(struct trace *trace, int layer, double size, double at) {
    for (size_t point = 0; point < trace->count; point++)
        if (trace->hours[point] >= at)
            trace->layers[layer][point] += size;
}

static void add_line(struct trace *trace, int layer, double slope, double from) {
    for (size_t point = 0; point < trace->count; point++)
        if (trace->hours[point] > from)
            trace->layers[layer][point] += slope * (trace->hours[point] - from);
}

static void add_walk(struct trace *trace, int layer, double deviation, double correlation) {
    double value = deviation * normal(trace);

    for (size_t point = 0; point < trace->count; point++) {
        trace->layers[layer][point] += value;
        value = correlation * value + deviation * sqrt(1 - correlation * correlation) * normal(trace);
    }
}

/* A day's load: one wave a day, and smaller ones twice a day; on weekends, `weekend` times as much. */
static void add_days(struct trace *trace, double size, double weekend) {
    double phase = between(trace, 0, 24), shape = between(trace, 0, 6.28), first_day = floor(between(trace, 0, 7));

    for (size_t point = 0; point < trace->count; point++) {
        double hour = trace->hours[point] + phase, day = fmod(first_day + floor(hour / 24), 7);
        double wave = sin(hour * 6.283185307179586 / 24) + 0.3 * sin(hour * 6.283185307179586 / 12 + shape);
        double load = size * (1 + wave) * (day < 5 ? 1 : weekend);

        trace->layers[MEMSCOPE_LAYER_OBJECTS][point] += 0.55 * load;
        trace->layers[MEMSCOPE_LAYER_NATIVE][point] += 0.30 * load;
        trace->layers[MEMSCOPE_LAYER_STACKS][point] += 0.15 * load;
    }
}

/* How many different keys, out of 50,000 that follow Zipf's law, this many requests name. */
static double distinct_keys(double requests, double exponent) {
    double keys = 0, weights = 0;

    for (double rank = 1; rank < 50000; rank *= 1.15)
        weights += 0.15 * rank * pow(rank, -exponent);
    for (double rank = 1; rank < 50000; rank *= 1.15)
        keys += 0.15 * rank * (1 - exp(-requests * pow(rank, -exponent) / weights));
    return keys;
}

/* Requests whose keys follow Zipf's law fill a cache with a limited number of entries. */
static void add_cache(struct trace *trace, int layer, double size, double filled_at) {
    double exponent = between(trace, 0.7, 1.1), room = between(trace, 0.05, 0.5) * 50000, low = 1, high = 1e9;

    while (high > 1.001 * low) {
        double middle = sqrt(low * high);

        *(distinct_keys(middle, exponent) < room ? &low : &high) = middle;
    }
    for (size_t point = 0; point < trace->count; point++) {
        double share = trace->hours[point] / filled_at;

        trace->layers[layer][point] += share >= 1 ? size : size * distinct_keys(low * share, exponent) / room;
    }
}

/* --- The process */

/* Floors have noise: of objects, most of which shows as free slots; of malloc; and of GCs that left garbage. */
static void add_noise(struct trace *trace) {
    double objects = scale_between(trace, 0.5, 4), native = scale_between(trace, 0.2, 1.5),
           residue = between(trace, 0, 4);
    double correlation = between(trace, 0, 0.6), moved = 0.6, value = 0;

    for (size_t point = 0; point < trace->count; point++) {
        value = point == 0 ? normal(trace) : correlation * value + sqrt(1 - correlation * correlation) * normal(trace);
        trace->layers[MEMSCOPE_LAYER_OBJECTS][point] += objects * value + residue * uniform(trace);
        trace->layers[MEMSCOPE_LAYER_FREE][point] -= moved * objects * value;
        trace->layers[MEMSCOPE_LAYER_NATIVE][point] += native * normal(trace);
        trace->layers[MEMSCOPE_LAYER_UNSHARED][point] += 0.3 * normal(trace);
    }
    trace->noise = sqrt(pow((1 - moved) * objects, 2) * (1 + correlation) / (1 - correlation) + native * native +
                        residue * residue / 12);
}

/* A process of the usual layers, with noise; in a third of the traces, its times are irregular. */
static void begin(struct trace *trace, int generator, uint64_t seed, double hours) {
    static const double shares[MEMSCOPE_LAYERS] = {0.40, 0.25, 0.15, 0.02, 0.13, 0.05, 0.05};
    bool irregular;
    double hour = 0;

    memset(trace, 0, sizeof *trace);
    trace->state = seed * 1000003u + (uint64_t)generator * 7919u;
    trace->base = scale_between(trace, 120, 900);
    trace->limit = trace->base * between(trace, 2, 6);
    irregular = uniform(trace) < 1.0 / 3;
    for (; trace->count < MOST_POINTS && hour <= hours; trace->count++) {
        trace->hours[trace->count] = hour;
        hour += irregular ? EPOCH_HOURS * between(trace, 0.4, 1.8) : EPOCH_HOURS;
    }
    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        for (size_t point = 0; point < trace->count; point++)
            trace->layers[layer][point] = shares[layer] * trace->base;
    trace->layer = MEMSCOPE_LAYER_NONE;
    add_noise(trace);
}

static void leak(struct trace *trace, enum memscope_layer layer, double slope, double began) {
    trace->leaks = true;
    trace->layer = layer;
    trace->slope = slope;
    trace->began = began;
    if (uniform(trace) < 0.5) {
        add_warm_up(trace, MEMSCOPE_LAYER_OBJECTS, trace->base * between(trace, 0.05, 0.25),
                    scale_between(trace, 0.05, 0.7), 0);
        add_warm_up(trace, MEMSCOPE_LAYER_CODE, trace->base * between(trace, 0.01, 0.08), scale_between(trace, 0.1, 1),
                    0);
    }
}

static void leak_line(struct trace *trace, enum memscope_layer layer, double least, double most, double began) {
    double slope = scale_between(trace, least, most);

    leak(trace, layer, slope, began);
    add_line(trace, (int)layer, slope, began);
}

/* --- Nulls */

static void flat(struct trace *trace) {
    (void)trace;
}

static void autocorrelated(struct trace *trace) {
    add_walk(trace, MEMSCOPE_LAYER_OBJECTS, scale_between(trace, 1, 6), 0.5);
}

static void strongly_autocorrelated(struct trace *trace) {
    add_walk(trace, MEMSCOPE_LAYER_OBJECTS, scale_between(trace, 1, 6), 0.9);
}

/* Garbage wanders until a major GC bounds it. */
static void bounded_walk(struct trace *trace) {
    double range = trace->base * between(trace, 0.02, 0.08), value = range / 2;
    double step = range / sqrt(scale_between(trace, 4, 24) / EPOCH_HOURS);

    for (size_t point = 0; point < trace->count; point++) {
        value += step * normal(trace);
        value = value < 0 ? -value : value > range ? 2 * range - value : value;
        trace->layers[MEMSCOPE_LAYER_OBJECTS][point] += value;
    }
}

static void daily(struct trace *trace) {
    add_days(trace, trace->base * between(trace, 0.01, 0.04), 1);
}

static void weekly(struct trace *trace) {
    add_days(trace, trace->base * between(trace, 0.01, 0.04), between(trace, 0.2, 0.7));
}

static void warm_up(struct trace *trace) {
    double size = trace->base * between(trace, 0.15, 0.8), scale = scale_between(trace, 1.0 / 12, 6);

    add_warm_up(trace, MEMSCOPE_LAYER_OBJECTS, 0.6 * size, scale, 0);
    add_warm_up(trace, MEMSCOPE_LAYER_NATIVE, 0.4 * size, scale, 0);
}

static void logarithmic_warm_up(struct trace *trace) {
    double size = trace->base * between(trace, 0.02, 0.08), scale = scale_between(trace, 1.0 / 30, 0.5);

    add_logarithm(trace, MEMSCOPE_LAYER_OBJECTS, 0.7 * size, scale);
    add_logarithm(trace, MEMSCOPE_LAYER_NATIVE, 0.3 * size, scale);
}

static void cache_fills(struct trace *trace) {
    add_cache(trace, uniform(trace) < 0.5 ? MEMSCOPE_LAYER_OBJECTS : MEMSCOPE_LAYER_NATIVE,
              trace->base * between(trace, 0.05, 0.4), scale_between(trace, 0.3, 12));
}

/* A cache of all that was ever asked for, which grows by Heaps' law until all is there. */
static void key_space_grows(struct trace *trace) {
    double size = trace->base * between(trace, 0.05, 0.3), end = scale_between(trace, 2, 72);
    double power = between(trace, 0.4, 0.7);

    for (size_t point = 0; point < trace->count; point++)
        trace->layers[MEMSCOPE_LAYER_OBJECTS][point] += size * pow(fmin(trace->hours[point] / end, 1), power);
}

static void fat_requests(struct trace *trace) {
    static const int layers[] = {MEMSCOPE_LAYER_OBJECTS, MEMSCOPE_LAYER_NATIVE, MEMSCOPE_LAYER_FREE};

    for (int left = 1 + (int)between(trace, 0, 3); left > 0; left--)
        add_step(trace, layers[(int)between(trace, 0, 3)], trace->base * between(trace, 0.03, 0.25),
                 scale_between(trace, 0.5, 160));
}

/* Code, its metadata in malloc, and now and then a method that is compiled later. */
static void jit_warm_up(struct trace *trace) {
    double size = trace->base * between(trace, 0.02, 0.06), scale = scale_between(trace, 0.1, 1.5), hour = 1;

    add_warm_up(trace, MEMSCOPE_LAYER_CODE, size, scale, 0);
    add_warm_up(trace, MEMSCOPE_LAYER_NATIVE, 2.5 * size, scale, 0);
    for (hour = 1; hour < 168; hour *= 1 + exponential(trace, 0.4)) {
        add_step(trace, MEMSCOPE_LAYER_CODE, 0.01 * size, hour);
        add_step(trace, MEMSCOPE_LAYER_NATIVE, 0.025 * size, hour);
    }
}

static void copy_on_write_loss(struct trace *trace) {
    double size = trace->base * between(trace, 0.3, 0.7);

    if (uniform(trace) < 0.5)
        add_warm_up(trace, MEMSCOPE_LAYER_UNSHARED, size, scale_between(trace, 0.2, 6), 0);
    else
        add_logarithm(trace, MEMSCOPE_LAYER_UNSHARED, size / 8, 0.1);
}

/* Each deploy starts a process, which warms up. */
static void deploys(struct trace *trace) {
    double size = trace->base * between(trace, 0.25, 0.8), scale = scale_between(trace, 0.1, 2), started = 0;
    double next = scale_between(trace, 4, 60);

    for (size_t point = 0; point < trace->count; point++) {
        if (trace->hours[point] > next) {
            started = next;
            next += scale_between(trace, 4, 60);
        }
        trace->layers[MEMSCOPE_LAYER_OBJECTS][point] += size * (1 - exp(-(trace->hours[point] - started) / scale));
    }
}

/* Files that are read stay in the page cache; mapped ones also add to RSS, until the kernel reclaims their pages. */
static void page_cache_grows(struct trace *trace) {
    double size = trace->base * between(trace, 0.02, 0.1), mapped = 0;

    for (size_t point = 0; point < trace->count; point++) {
        trace->file_cache[point] = fmin(trace->hours[point] * trace->base / 20, trace->limit - trace->base);
        mapped += (size - mapped) * 0.01 * uniform(trace);
        if (uniform(trace) < 0.003)
            mapped *= between(trace, 0.3, 0.8);
        trace->layers[MEMSCOPE_LAYER_CODE][point] += mapped;
    }
}

/* The process is suspended, a few times; the kernel takes some of its pages meanwhile. */
static void suspended(struct trace *trace) {
    add_walk(trace, MEMSCOPE_LAYER_OBJECTS, scale_between(trace, 1, 5), 0.5);
    for (int left = 1 + (int)between(trace, 0, 4); left > 0; left--) {
        size_t at = (size_t)between(trace, 1, (double)trace->count);
        double gap = scale_between(trace, 1, 20), size = -trace->base * between(trace, 0, 0.04);

        for (size_t point = at; point < trace->count; point++) {
            trace->hours[point] += gap;
            trace->layers[MEMSCOPE_LAYER_NATIVE][point] += size * exp(-(double)(point - at) / 30);
        }
    }
}

/* A third of the points is missing, and some whole hours. */
static void missing(struct trace *trace) {
    size_t kept = 0, out = 0;

    daily(trace);
    for (size_t point = 0; point < trace->count; point++) {
        if (uniform(trace) < 0.002)
            out = (size_t)between(trace, 10, 140);
        if (out > 0 ? out-- > 0 : uniform(trace) < 0.3)
            continue;
        trace->hours[kept] = trace->hours[point];
        for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
            trace->layers[layer][kept] = trace->layers[layer][point];
        kept++;
    }
    trace->count = kept;
}

/* --- Leaks */

static void leak_of_objects(struct trace *trace) {
    leak_line(trace, MEMSCOPE_LAYER_OBJECTS, 0.5, 200, 0);
}

static void leak_of_malloc(struct trace *trace) {
    leak_line(trace, MEMSCOPE_LAYER_NATIVE, 0.5, 200, 0);
}

static void leak_that_starts(struct trace *trace) {
    leak_line(trace, uniform(trace) < 0.5 ? MEMSCOPE_LAYER_OBJECTS : MEMSCOPE_LAYER_NATIVE, 1, 100,
              between(trace, 6, 96));
}

static void leak_under_days(struct trace *trace) {
    daily(trace);
    leak_line(trace, MEMSCOPE_LAYER_OBJECTS, 1, 60, 0);
}

/* Rare requests leak much. */
static void leak_in_bursts(struct trace *trace) {
    double slope = scale_between(trace, 1, 60), rate = scale_between(trace, 0.5, 6);
    enum memscope_layer layer = uniform(trace) < 0.5 ? MEMSCOPE_LAYER_OBJECTS : MEMSCOPE_LAYER_NATIVE;

    leak(trace, layer, slope, 0);
    trace->burst_hours = 32 / rate; /* sizes are exponential: 4 standard deviations of their sum */
    for (double hour = exponential(trace, 1 / rate); hour < 168; hour += exponential(trace, 1 / rate))
        add_step(trace, (int)layer, exponential(trace, slope / rate), hour);
}

/* A cache in malloc shrinks while objects leak. */
static void masked_leak(struct trace *trace) {
    double cache = trace->base * between(trace, 0.1, 0.2), hours = scale_between(trace, 4, 30);

    leak(trace, MEMSCOPE_LAYER_OBJECTS, cache / hours, 0);
    add_line(trace, MEMSCOPE_LAYER_OBJECTS, cache / hours, 0);
    for (size_t point = 0; point < trace->count; point++)
        trace->layers[MEMSCOPE_LAYER_NATIVE][point] -= cache * fmin(trace->hours[point] / hours, 1);
    trace->noise *= 2; /* objects have more noise than RSS, in which free slots make up for most of it */
}

/* Each thread leaks its stack, and some malloc memory. */
static void leak_of_threads(struct trace *trace) {
    double slope = scale_between(trace, 1, 20), size = between(trace, 0.1, 0.6), hour = 0;

    leak(trace, MEMSCOPE_LAYER_STACKS, slope, 0);
    for (; hour < 168; hour += exponential(trace, size / slope)) {
        add_step(trace, MEMSCOPE_LAYER_STACKS, 0.75 * size, hour);
        add_step(trace, MEMSCOPE_LAYER_NATIVE, 0.25 * size, hour);
    }
}

/* Each storm of requests leaves more free memory that nothing fits into. */
static void leak_of_fragments(struct trace *trace) {
    double slope = scale_between(trace, 2, 60), rate = 2;

    leak(trace, MEMSCOPE_LAYER_FREE, slope, 0);
    trace->burst_hours = 16 / rate;
    for (double hour = 0; hour < 168; hour += exponential(trace, 1 / rate))
        add_step(trace, MEMSCOPE_LAYER_FREE, between(trace, 0.5, 1.5) * slope / rate, hour);
    add_walk(trace, MEMSCOPE_LAYER_OBJECTS, 2, 0.5);
}

static void leak_of_code(struct trace *trace) {
    double slope = scale_between(trace, 0.7, 10);

    leak(trace, MEMSCOPE_LAYER_CODE, slope, 0);
    add_line(trace, MEMSCOPE_LAYER_CODE, 0.7 * slope, 0);
    add_line(trace, MEMSCOPE_LAYER_OBJECTS, 0.3 * slope, 0);
}

/* A leak, while pages that were shared after the fork are copied too. */
static void leak_of_a_worker(struct trace *trace) {
    copy_on_write_loss(trace);
    leak_line(trace, MEMSCOPE_LAYER_OBJECTS, 1, 60, 0);
}

static void leak_of_two_layers(struct trace *trace) {
    double slope = scale_between(trace, 1, 60);

    leak(trace, MEMSCOPE_LAYER_OBJECTS, slope, 0);
    add_line(trace, MEMSCOPE_LAYER_OBJECTS, 0.65 * slope, 0);
    add_line(trace, MEMSCOPE_LAYER_NATIVE, 0.35 * slope, 0);
}

/*
 * --- Blind: written after the verdict was tuned with the others, by someone who had not read how it judges. Since then
 * the verdict was tuned with these too.
 */

static double hour_of_week(const struct trace *trace, size_t point, double start) {
    return fmod(start + trace->hours[point], 168); /* 0: Monday, midnight */
}

/* A public site's traffic: 0.1 at 4 am and 1 at 4 pm; on weekends, `weekend` times as much. */
static double traffic_at(double hour, double weekend) {
    return (0.55 - 0.45 * cos((hour - 4) * 6.283185307179586 / 24)) * (hour < 120 ? 1 : weekend);
}

/* An office's traffic, 0 to 1: people come from 8 to 10, fewer are there at noon, and they leave from 16 to 18:30. */
static double office_at(double hour) {
    double of_day = fmod(hour, 24), noon = fabs(of_day - 12.5) < 0.5 ? 0.6 : 1;

    return hour >= 120 ? 0 : fmax(0, fmin(1, fmin((of_day - 8) / 2, (18.5 - of_day) / 2.5))) * noon;
}

/* What requests in flight need. */
static void add_load(struct trace *trace, size_t point, double size) {
    trace->layers[MEMSCOPE_LAYER_OBJECTS][point] += 0.55 * size;
    trace->layers[MEMSCOPE_LAYER_NATIVE][point] += 0.30 * size;
    trace->layers[MEMSCOPE_LAYER_STACKS][point] += 0.15 * size;
}

/*
 * One night's job, from hour `from` to `until`: it fills free memory first, `reused` of it, then takes more, one chunk
 * of records after another. What it frees goes back to the kernel over hours.
 */
static void add_job(struct trace *trace, double from, double until, double peak, double reused, double returning) {
    for (size_t point = 0; point < trace->count; point++) {
        double hour = trace->hours[point], size = 0;

        if (hour >= from && hour < until) {
            size = peak * (1 - exp(-(hour - from) / (0.15 * (until - from)))) * between(trace, 0.85, 1);
            trace->layers[MEMSCOPE_LAYER_OBJECTS][point] += 0.55 * size;
            trace->layers[MEMSCOPE_LAYER_NATIVE][point] += 0.45 * size;
            trace->layers[MEMSCOPE_LAYER_FREE][point] -= reused * fmin(size / peak, 1);
        } else if (hour >= until)
            trace->layers[MEMSCOPE_LAYER_FREE][point] += 0.3 * peak * exp(-(hour - until) / returning);
    }
}

/*
 * A job runs for about two hours on most nights, on amounts of data that differ. Each night fragments malloc's arenas
 * and the heap's pages more, but within a bound, since free memory is reused.
 */
static void nightly_batch(struct trace *trace) {
    double start = between(trace, 0, 168), at = between(trace, 0, 5), usual = trace->base * between(trace, 0.15, 0.5);
    double bound = between(trace, 0.1, 0.35), share = between(trace, 0.25, 0.6), returning = between(trace, 0.5, 2);
    double load = trace->base * between(trace, 0.005, 0.02), weekend = between(trace, 0.3, 1), held = 0;
    double end = trace->hours[trace->count - 1], night = ceil((start - at) / 24) * 24 + at - start;

    for (size_t point = 0; point < trace->count; point++)
        add_load(trace, point, load * traffic_at(hour_of_week(trace, point, start), weekend));
    for (; night < end; night += 24) {
        double from = night + between(trace, 0, 0.1), until = from + between(trace, 1.5, 2.5);
        double peak = usual * exp(0.2 * normal(trace)), more = fmax(share * (bound * peak - held), 0);

        if (uniform(trace) < 0.04)
            continue;
        add_job(trace, from, until, peak, 0.7 * held, returning);
        add_step(trace, MEMSCOPE_LAYER_FREE, more, until);
        held += more;
    }
}

/*
 * Traffic doubles in 4 to 10 steps within three days, and stays. With each step more requests are in flight, by the
 * week's waves, and within hours more threads, with their connections and caches, and more arenas are in use.
 */
static void traffic_doubles(struct trace *trace) {
    double start = between(trace, 0, 168), first = between(trace, 6, 72), weekend = between(trace, 0.4, 1), at[10];
    double wave = trace->base * between(trace, 0.02, 0.06), size = trace->base * between(trace, 0.05, 0.25);
    double settles = scale_between(trace, 0.3, 3);
    int steps = 4 + (int)between(trace, 0, 7);

    for (int step = 0; step < steps; step++) {
        double part = size / steps * between(trace, 0.6, 1.4);

        at[step] = first + 72 * (step + between(trace, 0, 0.8)) / steps;
        add_warm_up(trace, MEMSCOPE_LAYER_OBJECTS, 0.45 * part, settles, at[step]);
        add_warm_up(trace, MEMSCOPE_LAYER_NATIVE, 0.30 * part, settles, at[step]);
        add_warm_up(trace, MEMSCOPE_LAYER_FREE, 0.15 * part, settles, at[step]);
        add_warm_up(trace, MEMSCOPE_LAYER_STACKS, 0.10 * part, settles, at[step]);
    }
    for (size_t point = 0; point < trace->count; point++) {
        double level = 1;

        for (int step = 0; step < steps; step++)
            level += trace->hours[point] >= at[step] ? 1.0 / steps : 0;
        add_load(trace, point, wave * level * traffic_at(hour_of_week(trace, point, start), weekend));
    }
}

/*
 * Leaks only while people are in the office. One day of that looks like a day's load, or like a step: nobody can tell
 * before the end of the second working day. The slope is a week's mean.
 */
static void leak_in_office_hours(struct trace *trace) {
    double start = between(trace, 0, 168), size = trace->base * between(trace, 0.01, 0.05), leaked = 0;
    double rate = scale_between(trace, 4, 80), began = 0, mean = 0;
    enum memscope_layer layer = uniform(trace) < 0.5 ? MEMSCOPE_LAYER_OBJECTS : MEMSCOPE_LAYER_NATIVE;
    int days = 0;

    for (double hour = 0; hour < 168; hour += 0.125)
        mean += rate * office_at(hour) * 0.125 / 168;
    while (office_at(fmod(start + began, 168)) <= 0)
        began += EPOCH_HOURS;
    leak(trace, layer, mean, began);
    for (double hour = began; days < 2; hour += EPOCH_HOURS) {
        days += office_at(fmod(start + hour, 168)) > 0 && office_at(fmod(start + hour + EPOCH_HOURS, 168)) <= 0;
        trace->burst_hours = hour - began;
    }
    for (size_t point = 0; point < trace->count; point++) {
        double office = office_at(hour_of_week(trace, point, start));

        if (point > 0)
            leaked += rate * office * (trace->hours[point] - trace->hours[point - 1]) * between(trace, 0.5, 1.5);
        trace->layers[layer][point] += leaked;
        add_load(trace, point, size * office);
    }
}

/* How many requests an hour it takes to see half of all tenants in so many hours. */
static double requests_that_see_half(double exponent, double hours) {
    double low = 1, high = 1e9;

    while (high > 1.001 * low) {
        double middle = sqrt(low * high);

        *(distinct_keys(middle, exponent) < 25000 ? &low : &high) = middle;
    }
    return low / hours;
}

/*
 * A table keeps something for each tenant. Most of the old tenants come soon; new ones sign up for ever, more of them
 * by day and on working days. How much memory a tenant needs differs much, by a log-normal distribution.
 */
static void leak_per_tenant(struct trace *trace) {
    double slope = scale_between(trace, 0.7, 20), size = scale_between(trace, 0.05, 2),
           exponent = between(trace, 0.7, 1.1);
    double start = between(trace, 0, 168), weekend = between(trace, 0.2, 0.7),
           old = trace->base * between(trace, 0.03, 0.2);
    double requests = requests_that_see_half(exponent, scale_between(trace, 0.2, 4)), table = 0, next = 0;
    double mean = 0.55 * (5 + 2 * weekend) / 7, all = distinct_keys(1e12, exponent);

    leak(trace, MEMSCOPE_LAYER_OBJECTS, slope, 0);
    trace->burst_hours = 16 * exp(1) * size / slope; /* 4 standard deviations of the sum of so many sizes */
    for (size_t point = 0; point < trace->count; point++) {
        double held = old * distinct_keys(requests * trace->hours[point], exponent) / all;

        for (; next <= trace->hours[point]; next += exponential(trace, mean * size / slope))
            if (uniform(trace) < traffic_at(fmod(start + next, 168), weekend))
                table += size * exp(normal(trace) - 0.5);
        trace->layers[MEMSCOPE_LAYER_OBJECTS][point] += 0.7 * (held + table);
        trace->layers[MEMSCOPE_LAYER_NATIVE][point] += 0.3 * (held + table);
    }
}

static const struct generator {
    const char *name;
    void (*make)(struct trace *trace);
    bool blind;
} generators[] = {
    {"flat, white noise", flat, false},
    {"autocorrelated, 0.5", autocorrelated, false},
    {"autocorrelated, 0.9", strongly_autocorrelated, false},
    {"bounded random walk", bounded_walk, false},
    {"a day's load", daily, false},
    {"a week's load", weekly, false},
    {"warm-up, exponential", warm_up, false},
    {"warm-up, logarithmic", logarithmic_warm_up, false},
    {"cache fills", cache_fills, false},
    {"key space grows, stops", key_space_grows, false},
    {"1 to 3 fat requests", fat_requests, false},
    {"JIT warms up", jit_warm_up, false},
    {"copy-on-write loss", copy_on_write_loss, false},
    {"deploys", deploys, false},
    {"page cache grows", page_cache_grows, false},
    {"suspended", suspended, false},
    {"missing points", missing, false},
    {"leak: objects", leak_of_objects, false},
    {"leak: malloc", leak_of_malloc, false},
    {"leak: starts later", leak_that_starts, false},
    {"leak: under a day's load", leak_under_days, false},
    {"leak: in bursts", leak_in_bursts, false},
    {"leak: masked by a cache", masked_leak, false},
    {"leak: threads", leak_of_threads, false},
    {"leak: fragmentation", leak_of_fragments, false},
    {"leak: code", leak_of_code, false},
    {"leak: one of 8 workers", leak_of_a_worker, false},
    {"leak: two layers", leak_of_two_layers, false},
    {"blind: nightly batch", nightly_batch, true},
    {"blind: traffic doubles", traffic_doubles, true},
    {"blind: leak, office hours", leak_in_office_hours, true},
    {"blind: leak, per tenant", leak_per_tenant, true},
};

enum { GENERATORS = sizeof generators / sizeof *generators };

/* Cuts the trace where the process would be killed; converts to bytes, rounded down to pages. `rss` has MOST_POINTS. */
static void finish(struct trace *trace, double *seconds, double *rss) {
    for (size_t point = 0; point < trace->count; point++) {
        rss[point] = 0;
        seconds[point] = 1000 + trace->hours[point] * 3600;
        for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++) {
            trace->layers[layer][point] = floor(fmax(trace->layers[layer][point], 0) * 256) * 4096;
            rss[point] += layer == MEMSCOPE_LAYER_UNSHARED ? 0 : trace->layers[layer][point];
        }
        if (rss[point] > trace->limit * BYTES_OF_MIB) {
            trace->count = point;
            break;
        }
    }
}

static void generate(struct trace *trace, int generator, uint64_t seed, double hours, double *seconds, double *rss) {
    begin(trace, generator, seed, hours);
    generators[generator].make(trace);
    finish(trace, seconds, rss);
}

#endif
