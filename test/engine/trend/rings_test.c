#include "../expect.h"
#include "base/scratch.h"
#include "trend/rings.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNKNOWN MEMSCOPE_UNKNOWN
#define SERIES 3

static const uint32_t units[SERIES] = {1, 1024, 1};
static const uint64_t week = 7 * 24 * 3600;

/*
 * ---- a second implementation: a log of all samples of the last week, searched from end to end ---------------------
 */

struct sample {
    uint64_t seconds, values[SERIES];
};

static struct sample samples[1 << 20]; /* a ring with room for far more than a week's samples */
static size_t logged;

static void log_sample(uint64_t seconds, const uint64_t *values) {
    struct sample *sample = &samples[logged++ % (sizeof samples / sizeof *samples)];

    sample->seconds = seconds;
    memcpy(sample->values, values, sizeof sample->values);
}

static struct memscope_rings_point search(size_t series, uint64_t from, uint64_t to) {
    const size_t room = sizeof samples / sizeof *samples, oldest = logged > room ? logged - room : 0;
    struct memscope_rings_point found = {UNKNOWN, UNKNOWN};

    for (size_t index = logged; index-- > oldest && samples[index % room].seconds >= from;) {
        uint64_t value = samples[index % room].values[series];

        if (samples[index % room].seconds >= to || value == UNKNOWN)
            continue;
        value = value / units[series] < UINT32_MAX ? value / units[series] : UINT32_MAX - 1;
        value *= units[series];
        if (found.last == UNKNOWN)
            found.last = value;
        if (value < found.min)
            found.min = value;
    }
    return found;
}

/*
 * ---- random samples -----------------------------------------------------------------------------------------------
 */

static uint64_t state = 88172645463325252;

static uint64_t drawn(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

/* Mostly some seconds; sometimes a gap of hours, rarely one of up to two weeks, though the rings keep only one week. */
static uint64_t drawn_pause(void) {
    uint64_t kind = drawn(20000);

    return kind == 0 ? drawn(2 * week) : kind < 10 ? drawn(20000) : drawn(20);
}

static uint64_t drawn_value(void) {
    uint64_t kind = drawn(100);

    return kind < 20 ? UNKNOWN : kind == 21 ? UNKNOWN - 1 - drawn(5) : drawn((uint64_t)1 << (1 + drawn(44)));
}

static void compare(const struct memscope_rings *rings, uint64_t first, uint64_t now) {
    enum memscope_ring ring = (enum memscope_ring)drawn(MEMSCOPE_RING_COUNT);
    const struct memscope_ring_shape *shape = &memscope_ring_shapes[ring];
    struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];
    size_t series = drawn(SERIES), count;
    uint64_t since = drawn(2) ? 0 : now - drawn(now < week ? now + 1 : week), step = shape->step_seconds, start;

    count = memscope_rings_read(rings, ring, series, since, points, &start);
    EXPECT(count >= 1 && count <= shape->buckets && start % step == 0);
    EXPECT(start + (count - 1) * step <= now && now < start + count * step);
    EXPECT(count == shape->buckets || start <= (first > since ? first : since));
    for (size_t index = 0; index < count; index++) {
        struct memscope_rings_point expected = search(series, start + index * step, start + (index + 1) * step);

        EXPECT(points[index].min == expected.min && points[index].last == expected.last);
    }
}

static void test_against_the_log(void) {
    const char *wanted = getenv("MEMSCOPE_SAMPLES");
    uint64_t many = wanted ? strtoull(wanted, NULL, 10) : 60000, every = many / 30;
    struct memscope_rings *rings = memscope_rings_map(units, SERIES);
    uint64_t now = 5000, first = now;

    EXPECT(rings != NULL);
    for (uint64_t sample = 0; sample < many; sample++) {
        uint64_t values[SERIES] = {drawn_value(), drawn_value(), drawn_value()};

        EXPECT(memscope_rings_add(rings, now, values));
        log_sample(now, values);
        if (sample % every == 0 || sample < 20)
            compare(rings, first, now);
        now += drawn_pause();
    }
}

/*
 * ---- one by one ----------------------------------------------------------------------------------------------------
 */

static uint64_t mapped;

static void add_up(uintptr_t start, uintptr_t end, void *context) {
    *(size_t *)context += 1;
    mapped += end - start;
}

static void test_memory_is_fixed(void) {
    struct memscope_rings *rings = memscope_rings_map(units, SERIES);
    size_t before = 0, after = 0;
    uint64_t values[SERIES] = {1, 2, 3}, bytes;

    mapped = 0;
    memscope_scratch_each(add_up, &before);
    bytes = mapped / before;
    EXPECT(bytes >= 370 << 10 && bytes <= 390 << 10);
    EXPECT(memscope_rings_add(rings, 1000, values));
    EXPECT(memscope_lasting_resident_bytes(rings, bytes) <= 32 << 10);
    for (uint64_t now = 1000; now < 1000 + 2 * week; now += 7)
        EXPECT(memscope_rings_add(rings, now, values));
    mapped = 0;
    memscope_scratch_each(add_up, &after);
    EXPECT(after == before && mapped == before * bytes);
}

static void test_a_clock_that_goes_back(void) {
    struct memscope_rings *rings = memscope_rings_map(units, SERIES);
    struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];
    uint64_t values[SERIES] = {7, UNKNOWN, 7}, start;

    EXPECT(memscope_rings_read(rings, MEMSCOPE_RING_FINE, 0, 0, points, &start) == 0);
    EXPECT(memscope_rings_add(rings, 100, values) && memscope_rings_add(rings, 100, values));
    EXPECT(!memscope_rings_add(rings, 99, values) && !memscope_rings_mark(rings, 99, 1));
    EXPECT(memscope_rings_read(rings, MEMSCOPE_RING_FINE, 0, 0, points, &start) == 1 && start == 100);
    EXPECT(memscope_rings_add(rings, UINT64_MAX - 1, values));
    EXPECT(memscope_rings_read(rings, MEMSCOPE_RING_COARSE, 0, 0, points, &start) == MEMSCOPE_RINGS_MAX_POINTS);
    EXPECT(points[0].min == UNKNOWN && points[MEMSCOPE_RINGS_MAX_POINTS - 1].min == 7);
}

static void test_a_suspended_process(void) {
    struct memscope_rings *rings = memscope_rings_map(units, SERIES);
    struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];
    uint64_t high[SERIES] = {9, UNKNOWN, 9}, low[SERIES] = {4, UNKNOWN, UNKNOWN}, start;

    EXPECT(memscope_rings_add(rings, 100, high) && memscope_rings_add(rings, 105, low));
    EXPECT(memscope_rings_add(rings, 130, high));
    EXPECT(memscope_rings_read(rings, MEMSCOPE_RING_FINE, 0, 0, points, &start) == 4 && start == 100);
    EXPECT(points[0].min == 4 && points[0].last == 4 && points[3].min == 9);
    EXPECT(points[1].min == UNKNOWN && points[2].last == UNKNOWN);
    EXPECT(memscope_rings_read(rings, MEMSCOPE_RING_FINE, 2, 125, points, &start) == 2 && start == 120);
    EXPECT(memscope_rings_latest(rings, 2) == 9 && memscope_rings_latest(rings, 1) == UNKNOWN);
}

static void test_events(void) {
    struct memscope_rings *rings = memscope_rings_map(units, SERIES);
    struct memscope_rings_event events[MEMSCOPE_RINGS_EVENTS];
    uint64_t first, last;

    EXPECT(!memscope_rings_span(rings, &first, &last) && memscope_rings_read_events(rings, events) == 0);
    for (uint32_t index = 0; index < 300; index++)
        EXPECT(memscope_rings_mark(rings, 50 + index, index));
    EXPECT(memscope_rings_read_events(rings, events) == MEMSCOPE_RINGS_EVENTS);
    for (uint32_t index = 0; index < MEMSCOPE_RINGS_EVENTS; index++)
        EXPECT(events[index].kind == 300 - MEMSCOPE_RINGS_EVENTS + index &&
               events[index].seconds == 50 + events[index].kind);
    EXPECT(memscope_rings_span(rings, &first, &last) && first == 50 && last == 349);
}

/* The child's memory is its own: its parent's stays. */
static void test_a_forked_child(void) {
    struct memscope_rings *rings = memscope_rings_map(units, SERIES);
    struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];
    uint64_t values[SERIES] = {11, 22 << 10, UNKNOWN}, start;
    int status;
    pid_t child;

    EXPECT(memscope_rings_add(rings, 700, values) && memscope_rings_mark(rings, 700, 1));
    child = fork();
    if (child == 0) {
        struct memscope_rings_event events[MEMSCOPE_RINGS_EVENTS];

        memscope_rings_restart(rings);
        EXPECT(memscope_rings_read(rings, MEMSCOPE_RING_FINE, 0, 0, points, &start) == 0);
        EXPECT(memscope_rings_read_events(rings, events) == 0 && memscope_rings_latest(rings, 0) == UNKNOWN);
        EXPECT(memscope_rings_baseline(rings, 0) == 11 && memscope_rings_baseline(rings, 1) == 22 << 10);
        EXPECT(memscope_rings_baseline(rings, 2) == UNKNOWN);
        EXPECT(memscope_rings_add(rings, 20, values));
        EXPECT(memscope_rings_read(rings, MEMSCOPE_RING_FINE, 1, 0, points, &start) == 1 && points[0].last == 22 << 10);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(memscope_rings_read(rings, MEMSCOPE_RING_FINE, 0, 0, points, &start) == 1 && points[0].last == 11);
    EXPECT(memscope_rings_baseline(rings, 0) == UNKNOWN);
}

int main(void) {
    test_memory_is_fixed();
    test_a_clock_that_goes_back();
    test_a_suspended_process();
    test_events();
    test_a_forked_child();
    test_against_the_log();
    return 0;
}
