/*
 * Series of samples over time, in memory of fixed size, as three rings of buckets: of 10 seconds for an hour, of a
 * minute for 12 hours, of 10 minutes for a week. A bucket keeps the minimum and the last value of each series, and
 * nothing where there was no sample: means would hide the floors, and interpolated values would look like evidence.
 *
 * Time is in seconds of CLOCK_BOOTTIME, given by the caller: it never goes back, and goes on while the machine is
 * suspended, so that a suspended machine or process leaves buckets without samples.
 *
 * A store is one lasting mapping (base/scratch.h), 380 KiB, of which one page is resident at first and all after a
 * week. Forked children inherit it, and restart it. One thread at a time may use a store, under the GVL in the
 * bindings. Nothing here allocates after the mapping.
 */
#pragma once

#include "base/record.h"

#define MEMSCOPE_RINGS_SERIES 23
#define MEMSCOPE_RINGS_EVENTS 128      /* the latest ones are kept */
#define MEMSCOPE_RINGS_MAX_POINTS 1008 /* buckets of the largest ring */

enum memscope_ring { MEMSCOPE_RING_FINE, MEMSCOPE_RING_MIDDLE, MEMSCOPE_RING_COARSE, MEMSCOPE_RING_COUNT };

struct memscope_ring_shape {
    uint32_t step_seconds, buckets;
};

extern const struct memscope_ring_shape memscope_ring_shapes[MEMSCOPE_RING_COUNT];

/* Both are MEMSCOPE_UNKNOWN where there was no sample. */
struct memscope_rings_point {
    uint64_t min, last;
};

struct memscope_rings_event {
    uint64_t seconds;
    uint32_t kind; /* as the caller numbers them */
};

/* One bucket: for each series a value of 32 bits, as the store keeps it (memscope_rings_map), 0 for no sample. */
struct memscope_rings_bucket {
    uint32_t min[MEMSCOPE_RINGS_SERIES], last[MEMSCOPE_RINGS_SERIES];
};

struct memscope_rings;

/*
 * A new, empty store of count series. Values of a series are kept in 32 bits, as multiples of its unit, rounded down.
 * The unit is 1 for a count, and 1024 for bytes, which then reach 4 TiB. Larger values become the maximum. NULL when
 * the kernel refuses the mapping.
 */
struct memscope_rings *memscope_rings_map(const uint32_t *units, size_t count);

/*
 * Adds one sample of each series, but none to a series whose value is MEMSCOPE_UNKNOWN. Adds nothing and returns
 * false if this time is before that of an earlier call.
 */
bool memscope_rings_add(struct memscope_rings *rings, uint64_t seconds, const uint64_t *values);

/* Adds an event. Adds nothing and returns false if this time is before that of an earlier call. */
bool memscope_rings_mark(struct memscope_rings *rings, uint64_t seconds, uint32_t kind);

/* The times of the first and the last sample or event. Returns false if there was none. */
bool memscope_rings_span(const struct memscope_rings *rings, uint64_t *first, uint64_t *last);

/* The time at which a ring's oldest bucket begins. */
uint64_t memscope_rings_start(const struct memscope_rings *rings, enum memscope_ring ring);

/*
 * Copies a ring's points of one series, oldest first and one for every bucket, from the bucket that holds the time
 * `since`, or the oldest that is kept, to the bucket of the last sample or event. Returns their number, at most the
 * ring's buckets. *start is the time at which the first bucket begins.
 */
size_t memscope_rings_read(const struct memscope_rings *rings, enum memscope_ring ring, size_t series, uint64_t since,
                           struct memscope_rings_point *points, uint64_t *start);

/* Copies the events in the store, oldest first, and returns their number. */
size_t memscope_rings_read_events(const struct memscope_rings *rings, struct memscope_rings_event *events);

/* The last sample of a series, and the one that was the last when the store was restarted. */
uint64_t memscope_rings_latest(const struct memscope_rings *rings, size_t series);
uint64_t memscope_rings_baseline(const struct memscope_rings *rings, size_t series);

/* Forgets all samples and events. The last sample of each series becomes its baseline. For a forked child. */
void memscope_rings_restart(struct memscope_rings *rings);

/*
 * ---- a copy of a store in a file: its state, which changes with each sample, and its buckets ---------------------
 */

/* All buckets of a store have places, from 0: those of the first ring come first. */
#define MEMSCOPE_RINGS_PLACES 2088

/* A bucket with the number of its time span, counted from the boot of the machine, and its place in the store. */
struct memscope_rings_placed {
    uint64_t number;
    uint32_t place, unused;
    struct memscope_rings_bucket bucket;
};

/* The bucket of the last sample in a ring. */
struct memscope_rings_placed memscope_rings_newest(const struct memscope_rings *rings, enum memscope_ring ring);

/* The state: units, times and values of the first and last samples, and the events. Bytes of this size. */
#define MEMSCOPE_RINGS_STATE 2360
const void *memscope_rings_state(const struct memscope_rings *rings);

/* Bytes of a store for memscope_rings_restore. */
size_t memscope_rings_bytes(void);

/*
 * Makes a store in zeroed memory, aligned for uint64_t, from a state that may have been damaged. It has no buckets yet.
 * Returns MEMSCOPE_MALFORMED if the state cannot be that of a store with these units.
 */
enum memscope_status memscope_rings_restore(struct memscope_rings *rings, const uint32_t *units, size_t count,
                                            const void *state);

/* Adds a bucket to a restored store. Returns false, and adds none, if the store does not reach back to it. */
bool memscope_rings_put(struct memscope_rings *rings, const struct memscope_rings_placed *placed);
