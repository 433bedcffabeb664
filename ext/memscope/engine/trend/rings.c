#include "trend/rings.h"

#include <string.h>

#include "base/scratch.h"

#define FINE 360
#define MIDDLE 720
#define COARSE MEMSCOPE_RINGS_MAX_POINTS

const struct memscope_ring_shape memscope_ring_shapes[MEMSCOPE_RING_COUNT] = {{10, FINE}, {60, MIDDLE}, {600, COARSE}};
static const uint32_t first_buckets[MEMSCOPE_RING_COUNT] = {0, FINE, FINE + MIDDLE};

/* Later than any time of a machine. */
#define MAX_SECONDS (UINT64_C(1) << 40)

/* A kept value is one more than the value in units, so that 0, which fills a new mapping, means no sample. */
struct memscope_rings {
    struct state {
        uint32_t units[MEMSCOPE_RINGS_SERIES];
        uint32_t latest[MEMSCOPE_RINGS_SERIES], baseline[MEMSCOPE_RINGS_SERIES]; /* kept values */
        uint32_t begun;                                                          /* 1 after the first sample or event */
        uint64_t series;
        uint64_t first, last; /* seconds */
        uint64_t noted;       /* events so far */
        struct memscope_rings_event events[MEMSCOPE_RINGS_EVENTS];
    } head;
    /* Series side by side: pages become resident as time passes. */
    struct memscope_rings_bucket buckets[FINE + MIDDLE + COARSE];
};

_Static_assert(FINE + MIDDLE + COARSE == MEMSCOPE_RINGS_PLACES, "each bucket has a place");
_Static_assert(sizeof(struct state) == MEMSCOPE_RINGS_STATE, "the size that others know");

struct memscope_rings *memscope_rings_map(const uint32_t *units, size_t count) {
    struct memscope_rings *rings = memscope_lasting_map(sizeof *rings);

    if (rings == NULL)
        return NULL;
    rings->head.series = count < MEMSCOPE_RINGS_SERIES ? count : MEMSCOPE_RINGS_SERIES;
    memcpy(rings->head.units, units, rings->head.series * sizeof *units);
    return rings;
}

static uint32_t to_kept(uint64_t value, uint32_t unit) {
    if (value == MEMSCOPE_UNKNOWN)
        return 0;
    value /= unit;
    return value < UINT32_MAX ? (uint32_t)value + 1 : UINT32_MAX;
}

static uint64_t from_kept(uint32_t kept, uint32_t unit) {
    return kept == 0 ? MEMSCOPE_UNKNOWN : (uint64_t)(kept - 1) * unit;
}

static size_t place_of(enum memscope_ring ring, uint64_t number) {
    return first_buckets[ring] + (size_t)(number % memscope_ring_shapes[ring].buckets);
}

/* Empties the buckets that have begun since the last call, if they hold older samples. */
static void turn(struct memscope_rings *rings, enum memscope_ring ring, uint64_t seconds) {
    const struct memscope_ring_shape *shape = &memscope_ring_shapes[ring];
    uint64_t first = rings->head.first / shape->step_seconds, last = rings->head.last / shape->step_seconds;
    uint64_t now = seconds / shape->step_seconds;

    for (uint64_t number = last + 1; number <= now && number - last <= shape->buckets; number++)
        if (number - first >= shape->buckets)
            memset(&rings->buckets[place_of(ring, number)], 0, sizeof *rings->buckets);
}

static bool move_to(struct memscope_rings *rings, uint64_t seconds) {
    if (!rings->head.begun) {
        rings->head.begun = 1;
        rings->head.first = rings->head.last = seconds;
    }
    if (seconds < rings->head.last)
        return false;
    for (int ring = 0; ring < MEMSCOPE_RING_COUNT; ring++)
        turn(rings, (enum memscope_ring)ring, seconds);
    rings->head.last = seconds;
    return true;
}

static void add_to(struct memscope_rings_bucket *bucket, size_t series, uint32_t kept) {
    if (bucket->min[series] == 0 || kept < bucket->min[series])
        bucket->min[series] = kept;
    bucket->last[series] = kept;
}

bool memscope_rings_add(struct memscope_rings *rings, uint64_t seconds, const uint64_t *values) {
    if (!move_to(rings, seconds))
        return false;
    for (size_t series = 0; series < rings->head.series; series++) {
        uint32_t kept = to_kept(values[series], rings->head.units[series]);

        if (kept == 0)
            continue;
        rings->head.latest[series] = kept;
        for (int ring = 0; ring < MEMSCOPE_RING_COUNT; ring++)
            add_to(
                &rings->buckets[place_of((enum memscope_ring)ring, seconds / memscope_ring_shapes[ring].step_seconds)],
                series, kept);
    }
    return true;
}

bool memscope_rings_mark(struct memscope_rings *rings, uint64_t seconds, uint32_t kind) {
    if (!move_to(rings, seconds))
        return false;
    rings->head.events[rings->head.noted++ % MEMSCOPE_RINGS_EVENTS] =
        (struct memscope_rings_event){.seconds = seconds, .kind = kind};
    return true;
}

bool memscope_rings_span(const struct memscope_rings *rings, uint64_t *first, uint64_t *last) {
    *first = rings->head.first;
    *last = rings->head.last;
    return rings->head.begun != 0;
}

static uint64_t latest_of(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

uint64_t memscope_rings_start(const struct memscope_rings *rings, enum memscope_ring ring) {
    const struct memscope_ring_shape *shape = &memscope_ring_shapes[ring];
    uint64_t last = rings->head.last / shape->step_seconds, number = rings->head.first / shape->step_seconds;

    if (last >= shape->buckets)
        number = latest_of(number, last + 1 - shape->buckets);
    return number * shape->step_seconds;
}

size_t memscope_rings_read(const struct memscope_rings *rings, enum memscope_ring ring, size_t series, uint64_t since,
                           struct memscope_rings_point *points, uint64_t *start) {
    const struct memscope_ring_shape *shape = &memscope_ring_shapes[ring];
    uint64_t last = rings->head.last / shape->step_seconds;
    uint64_t number = latest_of(memscope_rings_start(rings, ring), since) / shape->step_seconds;
    size_t count = 0;

    *start = number * shape->step_seconds;
    for (; rings->head.begun && number <= last; number++) {
        const struct memscope_rings_bucket *bucket = &rings->buckets[place_of(ring, number)];

        points[count].min = from_kept(bucket->min[series], rings->head.units[series]);
        points[count++].last = from_kept(bucket->last[series], rings->head.units[series]);
    }
    return count;
}

size_t memscope_rings_read_events(const struct memscope_rings *rings, struct memscope_rings_event *events) {
    size_t all = rings->head.noted, from = all > MEMSCOPE_RINGS_EVENTS ? all - MEMSCOPE_RINGS_EVENTS : 0;

    for (size_t event = from; event < all; event++)
        events[event - from] = rings->head.events[event % MEMSCOPE_RINGS_EVENTS];
    return all - from;
}

uint64_t memscope_rings_latest(const struct memscope_rings *rings, size_t series) {
    return from_kept(rings->head.latest[series], rings->head.units[series]);
}

uint64_t memscope_rings_baseline(const struct memscope_rings *rings, size_t series) {
    return from_kept(rings->head.baseline[series], rings->head.units[series]);
}

void memscope_rings_restart(struct memscope_rings *rings) {
    struct state head = rings->head;

    memscope_lasting_empty(rings, sizeof *rings);
    rings->head.series = head.series;
    memcpy(rings->head.units, head.units, sizeof head.units);
    memcpy(rings->head.baseline, head.latest, sizeof head.latest);
}

/* ---- a copy in a file -------------------------------------------------------------------------------------------- */

struct memscope_rings_placed memscope_rings_newest(const struct memscope_rings *rings, enum memscope_ring ring) {
    struct memscope_rings_placed placed = {.number = rings->head.last / memscope_ring_shapes[ring].step_seconds};

    placed.place = (uint32_t)place_of(ring, placed.number);
    placed.bucket = rings->buckets[placed.place];
    return placed;
}

const void *memscope_rings_state(const struct memscope_rings *rings) {
    return &rings->head;
}

size_t memscope_rings_bytes(void) {
    return sizeof(struct memscope_rings);
}

static bool is_sound(const struct state *state, const uint32_t *units, size_t count) {
    uint64_t kept = state->noted < MEMSCOPE_RINGS_EVENTS ? state->noted : MEMSCOPE_RINGS_EVENTS;

    for (size_t event = 0; event < kept; event++)
        if (state->events[event].seconds > state->last)
            return false;
    return state->begun == 1 && state->series == count && state->first <= state->last && state->last < MAX_SECONDS &&
           memcmp(state->units, units, count * sizeof *units) == 0;
}

enum memscope_status memscope_rings_restore(struct memscope_rings *rings, const uint32_t *units, size_t count,
                                            const void *state) {
    memcpy(&rings->head, state, sizeof rings->head);
    return is_sound(&rings->head, units, count) ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

bool memscope_rings_put(struct memscope_rings *rings, const struct memscope_rings_placed *placed) {
    int ring = MEMSCOPE_RING_COUNT - 1;
    uint64_t first, last;

    while (ring > 0 && placed->place < first_buckets[ring])
        ring--;
    first = rings->head.first / memscope_ring_shapes[ring].step_seconds;
    last = rings->head.last / memscope_ring_shapes[ring].step_seconds;
    if (placed->number < first || placed->number > last ||
        last - placed->number >= memscope_ring_shapes[ring].buckets ||
        placed->place != place_of((enum memscope_ring)ring, placed->number))
        return false;
    rings->buckets[placed->place] = placed->bucket;
    return true;
}
