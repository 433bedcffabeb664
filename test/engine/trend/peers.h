/* What other watchers say of the same traces, by their rules. */
#ifndef PEERS_H
#define PEERS_H

#include "traces.h"
#include "trend/statistics.h"

/* socketry's memory-leak: each time that RSS exceeds its last maximum by 10 MB is a strike; 20 are a leak. */
struct ratchet {
    double most;
    int strikes;
};

static bool ratchet_says_leak(struct ratchet *ratchet, double rss) {
    if (ratchet->most <= 0) {
        ratchet->most = rss;
    } else if (rss > ratchet->most + 10e6) {
        ratchet->most = rss;
        ratchet->strikes++;
    }
    return ratchet->strikes >= 20;
}

/*
 * Prometheus: predict_linear(working_set[4h], 24h) > limit, and 70 % of it used. Least squares, with an hour of points
 * at least.
 */
static bool predict_linear_says_leak(const struct trace *trace, const double *rss, size_t count) {
    double now = trace->hours[count - 1], times = 0, values = 0, squares = 0, products = 0, used, slope, points = 0;
    size_t first = count;

    while (first > 0 && trace->hours[first - 1] >= now - 4)
        first--;
    for (size_t point = first; point < count; point++) {
        double value = rss[point] / BYTES_OF_MIB + trace->file_cache[point], time = trace->hours[point] - now;

        times += time;
        values += value;
        squares += time * time;
        products += time * value;
        points++;
    }
    used = rss[count - 1] / BYTES_OF_MIB + trace->file_cache[count - 1];
    slope = (products - times * values / points) / (squares - times * times / points);
    return points >= 12 && (values - slope * times) / points + 24 * slope > trace->limit && used > 0.7 * trace->limit;
}

/* Mann-Kendall, p < 0.01, of RSS since the start. */
static bool mann_kendall_says_leak(const double *rss, size_t count) {
    double values[MEMSCOPE_PAIRED_POINTS];
    size_t together = (count + MEMSCOPE_PAIRED_POINTS - 1) / MEMSCOPE_PAIRED_POINTS, taken = 0;

    for (size_t first = 0; first + together <= count; first += together, taken++) {
        values[taken] = 0;
        for (size_t point = first; point < first + together; point++)
            values[taken] += rss[point] / (double)together;
    }
    return count >= 12 && memscope_mann_kendall(values, taken, 1) < 0.01;
}

#endif
