#include "trend/history.h"

#include <math.h>
#include <string.h>

#define MAX_EPOCHS ((size_t)2 * MEMSCOPE_RINGS_MAX_POINTS) /* of five minutes in a week */
#define ENOUGH_EPOCHS 24
#define LATE_EPOCHS 3

const char *const memscope_history_names[MEMSCOPE_HISTORY_SERIES] = {
#define SERIES(name, unit) #name,
#include "trend/series.def"
};
const uint32_t memscope_history_units[MEMSCOPE_HISTORY_SERIES] = {
#define SERIES(name, unit) unit,
#include "trend/series.def"
};
_Static_assert(MEMSCOPE_HISTORY_SERIES == MEMSCOPE_RINGS_SERIES, "the rings have room for each series");

static const unsigned epoch_lengths[] = {300, 600, 1200, 1800};

/* The series that are judged, each with the one that contains it, which comes first. */
static const struct {
    enum memscope_history_series series, whole;
} judged[] = {
    {MEMSCOPE_HISTORY_rss, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_uss, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_live_bytes, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_ruby_heap, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_malloc, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_stacks, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_jit, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_ruby_internal, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_files, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_shared_memory, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_memscope, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_unattributed, MEMSCOPE_HISTORY_rss},
    {MEMSCOPE_HISTORY_malloc_in_use, MEMSCOPE_HISTORY_malloc},
    {MEMSCOPE_HISTORY_held, MEMSCOPE_HISTORY_malloc_in_use},
};
enum { JUDGED = sizeof judged / sizeof *judged };

/* Epochs begin at multiples of their length after the beginning of the coarsest ring. */
struct epochs {
    unsigned seconds;
    uint64_t began;
    size_t count;
};

/* The samples of a series, NAN where there is none. */
struct taken {
    const struct memscope_rings *rings;
    struct memscope_history *history;
    struct memscope_scratch *scratch;
    struct epochs epochs;
    const unsigned *spacing;
    size_t awake[MAX_EPOCHS]; /* the epochs with a sample of RSS */
    size_t count;             /* of them */
    double *values[MEMSCOPE_HISTORY_SERIES];
    size_t latest[MEMSCOPE_HISTORY_SERIES]; /* the last one with a sample */
};

static bool is_sampled(const struct memscope_rings *rings, enum memscope_history_series series) {
    return memscope_rings_latest(rings, series) != MEMSCOPE_UNKNOWN;
}

/* ---- epochs --------------------------------------------------------------------------------------------------- */

static struct epochs lay_out(const struct memscope_rings *rings, unsigned seconds) {
    uint64_t first, last, origin = memscope_rings_start(rings, MEMSCOPE_RING_COARSE), begun = 0, whole;

    memscope_rings_span(rings, &first, &last);
    if (first > origin)
        begun = (first - origin + seconds - 1) / seconds;
    whole = ((last / 10 + 1) * 10 - origin) / seconds;
    return (struct epochs){seconds, origin + begun * seconds, whole > begun ? (size_t)(whole - begun) : 0};
}

/* The change of a series since that time in a ring, 0 without values. Returns the number of buckets with values. */
static size_t change_in(const struct memscope_rings *rings, enum memscope_ring ring,
                        enum memscope_history_series series, uint64_t since, int64_t *change) {
    struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];
    uint64_t first = 0, last = 0, start;
    size_t known = 0, count = memscope_rings_read(rings, ring, series, since, points, &start);

    for (size_t index = 0; index < count; index++) {
        if (points[index].last == MEMSCOPE_UNKNOWN)
            continue;
        last = points[index].last;
        if (known++ == 0)
            first = last;
    }
    *change = (int64_t)last - (int64_t)first;
    return known;
}

/* Returns true if there is at least one major GC per epoch, by the coarsest ring. */
static bool has_collections(const struct memscope_rings *rings, size_t epochs) {
    int64_t collections;

    return change_in(rings, MEMSCOPE_RING_COARSE, MEMSCOPE_HISTORY_major_gcs, 0, &collections) == 0 ||
           (uint64_t)collections >= epochs;
}

static struct epochs choose_epochs(const struct memscope_rings *rings) {
    struct epochs epochs = {0};

    for (size_t length = 0; length < sizeof epoch_lengths / sizeof *epoch_lengths; length++) {
        epochs = lay_out(rings, epoch_lengths[length]);
        if (epochs.count < (size_t)2 * ENOUGH_EPOCHS || has_collections(rings, epochs.count))
            break;
    }
    return epochs;
}

/* Fills in the minimum of each epoch, from each ring in turn, the finest last. */
static void take_floors(const struct memscope_rings *rings, const struct epochs *epochs,
                        enum memscope_history_series series, double *floors) {
    struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];

    for (size_t epoch = 0; epoch < epochs->count; epoch++)
        floors[epoch] = NAN;
    for (int ring = MEMSCOPE_RING_COUNT - 1; ring >= 0; ring--) {
        unsigned step = memscope_ring_shapes[ring].step_seconds;
        uint64_t start;
        size_t count = memscope_rings_read(rings, (enum memscope_ring)ring, series, 0, points, &start);

        for (size_t epoch = 0; epoch < epochs->count; epoch++) {
            uint64_t from = epochs->began + epoch * epochs->seconds, until = from + epochs->seconds;

            if (from < start)
                continue;
            floors[epoch] = NAN;
            for (size_t at = (size_t)((from - start) / step); at < count && start + at * step < until; at++)
                if (points[at].min != MEMSCOPE_UNKNOWN)
                    floors[epoch] = fmin(floors[epoch], (double)points[at].min);
        }
    }
}

/* ---- series --------------------------------------------------------------------------------------------------- */

static bool are_unknown(const double *values, size_t first, size_t after) {
    for (size_t index = first; index < after; index++)
        if (!isnan(values[index]))
            return false;
    return true;
}

/* Returns true if the first and the last epochs have samples. Otherwise notes the reason. */
static bool is_current(struct taken *taken, enum memscope_history_series series) {
    struct memscope_history *history = taken->history;
    size_t late = taken->count < LATE_EPOCHS ? taken->count : LATE_EPOCHS;
    size_t max_gap = 2 + 2 * (size_t)taken->spacing[series] / taken->epochs.seconds;
    size_t recent = taken->count < max_gap ? taken->count : max_gap;

    if (are_unknown(taken->values[series], 0, late)) {
        history->uses[series] = MEMSCOPE_HISTORY_BEGAN_LATE;
        history->unsampled_epochs[series] = LATE_EPOCHS;
    } else if (are_unknown(taken->values[series], taken->count - recent, taken->count)) {
        history->uses[series] = MEMSCOPE_HISTORY_ENDED;
        history->unsampled_epochs[series] = (unsigned)max_gap;
    } else {
        history->uses[series] = MEMSCOPE_HISTORY_USED;
    }
    return history->uses[series] == MEMSCOPE_HISTORY_USED;
}

/* Notes which epochs have a sample of RSS. */
static void find_awake(struct taken *taken, const double *rss) {
    for (size_t epoch = 0; epoch < taken->epochs.count; epoch++)
        if (!isnan(rss[epoch]))
            taken->awake[taken->count++] = epoch;
}

static bool take_series(struct taken *taken, double *floors) {
    for (int index = 0; index < JUDGED; index++) {
        enum memscope_history_series series = judged[index].series;
        double *values;

        if (!is_sampled(taken->rings, series))
            continue;
        take_floors(taken->rings, &taken->epochs, series, floors);
        if (series == MEMSCOPE_HISTORY_rss)
            find_awake(taken, floors);
        values = memscope_scratch_take(taken->scratch, (taken->count + 1) * sizeof *values);
        if (values == NULL)
            return false;
        for (size_t epoch = 0; epoch < taken->count; epoch++)
            values[epoch] = floors[taken->awake[epoch]];
        taken->values[series] = values;
        if (!is_current(taken, series))
            taken->values[series] = NULL;
    }
    return true;
}

/* Fills in the epochs between two with samples. */
static void fill_between(double *values, const double *whole, size_t from, size_t to) {
    for (size_t epoch = from + 1; epoch < to; epoch++) {
        double all = whole[to] - whole[from];
        double share = all != 0 ? fmin(fmax((whole[epoch] - whole[from]) / all, 0), 1) : 0; /* NAN: 0 */

        values[epoch] = round(values[from] + (values[to] - values[from]) * share);
    }
}

/* Returns the first epoch with a sample, and fills in the later epochs without one. */
static size_t complete(struct taken *taken, int index) {
    enum memscope_history_series series = judged[index].series, whole = judged[index].whole;
    double *values = taken->values[series];
    const double *all = taken->values[taken->values[whole] != NULL ? whole : MEMSCOPE_HISTORY_rss];
    size_t first = 0, last;

    while (first < taken->count && isnan(values[first]))
        first++;
    last = first;
    for (size_t epoch = first; epoch < taken->count; epoch++) {
        if (isnan(values[epoch]))
            continue;
        fill_between(values, all, last, epoch);
        last = epoch;
    }
    for (size_t epoch = last + 1; epoch < taken->count; epoch++)
        values[epoch] = values[last];
    taken->latest[series] = last;
    return first;
}

/* Leaves out the first epochs, until all series are known. */
static void align(struct taken *taken) {
    size_t lost = 0;

    for (int index = 0; index < JUDGED; index++)
        if (taken->values[judged[index].series] != NULL)
            lost = (size_t)fmax((double)lost, (double)complete(taken, index));
    for (int series = 0; series < MEMSCOPE_HISTORY_SERIES; series++) {
        if (taken->values[series] != NULL)
            taken->values[series] += lost;
        taken->latest[series] = taken->latest[series] > lost ? taken->latest[series] - lost : 0;
    }
    taken->count -= lost;
    memmove(taken->awake, taken->awake + lost, taken->count * sizeof *taken->awake);
}

/* ---- layers --------------------------------------------------------------------------------------------------- */

/* A series of a layer, or NULL, which is noted. */
static const double *part(struct taken *taken, enum memscope_layer layer, enum memscope_history_series series) {
    if (taken->values[series] == NULL && taken->history->missing[layer] == MEMSCOPE_HISTORY_SERIES)
        taken->history->missing[layer] = series;
    return taken->values[series];
}

/* Adds one series to a layer, and subtracts another where that leaves something. */
static void add(struct taken *taken, double *layer, const double *values, const double *less) {
    for (size_t epoch = 0; epoch < taken->count; epoch++)
        layer[epoch] += less == NULL ? values[epoch] : fmax(values[epoch] - less[epoch], 0);
}

/*
 * Objects' share of malloc's memory in use. Assumes that their share of the memory that came into use after the last
 * walk is the same as before it.
 */
static void hold_since_last_walk(struct taken *taken) {
    double *held = taken->values[MEMSCOPE_HISTORY_held];
    const double *in_use = taken->values[MEMSCOPE_HISTORY_malloc_in_use];
    size_t walk = taken->latest[MEMSCOPE_HISTORY_held];
    double came = in_use[walk] - in_use[0];
    double share = came != 0 ? fmin(fmax((held[walk] - held[0]) / came, 0), 1) : 0;

    for (size_t epoch = walk + 1; epoch < taken->count; epoch++)
        held[epoch] = fmax(held[walk] + round((in_use[epoch] - in_use[walk]) * share), 0);
}

static void split_malloc(struct taken *taken, double *const *layers) {
    const double **known = taken->history->trend.layers;
    const double *held = part(taken, MEMSCOPE_LAYER_OBJECTS, MEMSCOPE_HISTORY_held);
    const double *in_use = part(taken, MEMSCOPE_LAYER_NATIVE, MEMSCOPE_HISTORY_malloc_in_use);
    const double *live = part(taken, MEMSCOPE_LAYER_OBJECTS, MEMSCOPE_HISTORY_live_bytes);

    part(taken, MEMSCOPE_LAYER_NATIVE, MEMSCOPE_HISTORY_held);
    if (held != NULL && in_use != NULL) {
        hold_since_last_walk(taken);
        add(taken, layers[MEMSCOPE_LAYER_NATIVE], in_use, held);
        known[MEMSCOPE_LAYER_NATIVE] = layers[MEMSCOPE_LAYER_NATIVE];
    }
    if (live == NULL)
        return;
    add(taken, layers[MEMSCOPE_LAYER_OBJECTS], live, NULL);
    if (held != NULL)
        add(taken, layers[MEMSCOPE_LAYER_OBJECTS], held, NULL);
    known[MEMSCOPE_LAYER_OBJECTS] = layers[MEMSCOPE_LAYER_OBJECTS];
}

/* Free memory of malloc and of Ruby's heap: either part may be unknown. */
static void take_free(struct taken *taken, double *layer) {
    static const enum memscope_history_series parts[][2] = {
        {MEMSCOPE_HISTORY_malloc, MEMSCOPE_HISTORY_malloc_in_use},
        {MEMSCOPE_HISTORY_ruby_heap, MEMSCOPE_HISTORY_live_bytes},
    };

    for (int index = 0; index < 2; index++) {
        const double *row = part(taken, MEMSCOPE_LAYER_FREE, parts[index][0]);
        const double *used = part(taken, MEMSCOPE_LAYER_FREE, parts[index][1]);

        if (row == NULL || used == NULL)
            continue;
        add(taken, layer, row, used);
        taken->history->trend.layers[MEMSCOPE_LAYER_FREE] = layer;
    }
}

static void take_rows(struct taken *taken, double *const *layers) {
    static const struct {
        enum memscope_layer layer;
        enum memscope_history_series row;
    } rows[] = {
        {MEMSCOPE_LAYER_STACKS, MEMSCOPE_HISTORY_stacks},
        {MEMSCOPE_LAYER_CODE, MEMSCOPE_HISTORY_files},
        {MEMSCOPE_LAYER_CODE, MEMSCOPE_HISTORY_jit},
        {MEMSCOPE_LAYER_CODE, MEMSCOPE_HISTORY_ruby_internal},
        {MEMSCOPE_LAYER_SHARED, MEMSCOPE_HISTORY_shared_memory},
    };
    const double **known = taken->history->trend.layers;

    for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
        enum memscope_layer layer = rows[index].layer;
        const double *values = part(taken, layer, rows[index].row);

        if (values != NULL)
            add(taken, layers[layer], values, NULL);
        known[layer] = taken->history->missing[layer] == MEMSCOPE_HISTORY_SERIES ? layers[layer] : NULL;
    }
}

/* Growth of private memory beyond that of RSS, in a process that was forked from one that samples itself. */
static void take_unshared(struct taken *taken, double *layer) {
    const double *rss = taken->values[MEMSCOPE_HISTORY_rss], *own;
    bool forked = false;

    for (int series = 0; series < MEMSCOPE_HISTORY_SERIES; series++)
        forked |= memscope_rings_baseline(taken->rings, series) != MEMSCOPE_UNKNOWN;
    if (!forked || (own = part(taken, MEMSCOPE_LAYER_UNSHARED, MEMSCOPE_HISTORY_uss)) == NULL)
        return;
    for (size_t epoch = 0; epoch < taken->count; epoch++)
        layer[epoch] = fmax((own[epoch] - own[0]) - (rss[epoch] - rss[0]), 0);
    taken->history->trend.layers[MEMSCOPE_LAYER_UNSHARED] = layer;
}

static bool take_layers(struct taken *taken) {
    double *layers[MEMSCOPE_LAYERS];

    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++) {
        layers[layer] = memscope_scratch_take(taken->scratch, (taken->count + 1) * sizeof **layers);
        if (layers[layer] == NULL)
            return false;
    }
    split_malloc(taken, layers);
    take_free(taken, layers[MEMSCOPE_LAYER_FREE]);
    take_rows(taken, layers);
    take_unshared(taken, layers[MEMSCOPE_LAYER_UNSHARED]);
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------------------------ */

static void sum_up(struct memscope_history *history) {
    const struct memscope_trend *trend = &history->trend;
    const double *unshared = trend->layers[MEMSCOPE_LAYER_UNSHARED];

    if (trend->count == 0)
        return;
    history->first_seconds = trend->seconds[0];
    history->last_seconds = trend->seconds[trend->count - 1];
    history->rss_bytes = trend->rss[trend->count - 1];
    if (unshared != NULL)
        history->unshared_bytes = unshared[trend->count - 1];
}

static enum memscope_status take_all(struct taken *taken) {
    struct memscope_history *history = taken->history;
    double *floors = memscope_scratch_take(taken->scratch, sizeof *floors * MAX_EPOCHS), *seconds;

    if (floors == NULL || !take_series(taken, floors))
        return MEMSCOPE_NO_MEMORY;
    if (history->uses[MEMSCOPE_HISTORY_rss] != MEMSCOPE_HISTORY_USED)
        return MEMSCOPE_OK;
    align(taken);
    seconds = floors; /* no longer used */
    for (size_t epoch = 0; epoch < taken->count; epoch++)
        seconds[epoch] = (double)(taken->epochs.began + taken->awake[epoch] * taken->epochs.seconds);
    history->trend.count = taken->count;
    history->trend.seconds = seconds;
    history->trend.rss = taken->values[MEMSCOPE_HISTORY_rss];
    if (!take_layers(taken))
        return MEMSCOPE_NO_MEMORY;
    sum_up(history);
    return MEMSCOPE_OK;
}

enum memscope_status memscope_history_take(const struct memscope_rings *rings, const unsigned *spacing,
                                           struct memscope_scratch *scratch, struct memscope_history *history) {
    struct taken *taken;

    *history = (struct memscope_history){.epoch_seconds = epoch_lengths[0], .rss_bytes = NAN, .unshared_bytes = NAN};
    for (int layer = 0; layer < MEMSCOPE_LAYERS; layer++)
        history->missing[layer] = MEMSCOPE_HISTORY_SERIES;
    for (int series = 0; series < MEMSCOPE_HISTORY_SERIES; series++)
        history->uses[series] = MEMSCOPE_HISTORY_UNSAMPLED;
    if (rings == NULL || !is_sampled(rings, MEMSCOPE_HISTORY_rss))
        return MEMSCOPE_OK;
    taken = memscope_scratch_take(scratch, sizeof *taken);
    if (taken == NULL)
        return MEMSCOPE_NO_MEMORY;
    *taken = (struct taken){.rings = rings, .history = history, .scratch = scratch, .spacing = spacing};
    taken->epochs = choose_epochs(rings);
    history->epoch_seconds = taken->epochs.seconds;
    history->ended = taken->epochs.began + taken->epochs.count * taken->epochs.seconds;
    return take_all(taken);
}

/* The finest ring that reaches back to that time, or the coarsest. */
static enum memscope_ring ring_since(const struct memscope_rings *rings, uint64_t since) {
    int ring = MEMSCOPE_RING_FINE;

    while (ring < MEMSCOPE_RING_COARSE && memscope_rings_start(rings, (enum memscope_ring)ring) > since)
        ring++;
    return (enum memscope_ring)ring;
}

bool memscope_history_growth(const struct memscope_rings *rings, int64_t *bytes, uint64_t *since) {
    struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];
    unsigned char known[MEMSCOPE_RINGS_MAX_POINTS] = {0};
    uint64_t begun, last, start = 0;
    size_t count = 0, first = 0;
    enum memscope_ring ring;

    if (!memscope_rings_span(rings, &begun, &last))
        return false;
    ring = ring_since(rings, begun);
    for (int row = 0; row < MEMSCOPE_HISTORY_ROWS; row++) {
        count = memscope_rings_read(rings, ring, (size_t)MEMSCOPE_HISTORY_FIRST_ROW + (size_t)row, 0, points, &start);
        for (size_t index = 0; index < count; index++)
            known[index] += points[index].last != MEMSCOPE_UNKNOWN;
    }
    while (count > 0 && known[count - 1] < MEMSCOPE_HISTORY_ROWS)
        count--;
    while (first < count && known[first] < MEMSCOPE_HISTORY_ROWS)
        first++;
    if (first + 1 >= count)
        return false;
    *since = start + (first + 1) * memscope_ring_shapes[ring].step_seconds; /* values are the last ones of a bucket */
    for (int row = 0; row < MEMSCOPE_HISTORY_ROWS; row++) {
        memscope_rings_read(rings, ring, (size_t)MEMSCOPE_HISTORY_FIRST_ROW + (size_t)row, 0, points, &start);
        bytes[row] = (int64_t)points[count - 1].last - (int64_t)points[first].last;
    }
    return true;
}

bool memscope_history_change(const struct memscope_rings *rings, enum memscope_history_series series, uint64_t since,
                             int64_t *change) {
    return change_in(rings, ring_since(rings, since), series, since, change) > 1;
}
