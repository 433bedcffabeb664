/*
 * Native.history_series, history_buckets, open_history, add_to_history, mark_history, history: the rings of samples of
 * this process.
 *
 * Users of the rings hold the GVL from beginning to end, so that a fork by Ruby never copies them half written. A
 * forked child empties them before its first use.
 */
#include "bindings/history_rings.h"
#include "bindings/reasons.h"

#include "init.h"
#include "trend/history.h"

#include <unistd.h>

static struct memscope_rings *rings; /* never unmapped */
static pid_t owner;                  /* the process whose samples they hold */

struct memscope_rings *memscope_rings_of_this_process(void) {
    if (rings != NULL && owner != getpid()) {
        memscope_rings_restart(rings);
        owner = getpid();
    }
    return rings;
}

static const char *unit_of(size_t series) {
    return memscope_history_units[series] == 1 ? "count" : "bytes";
}

/* Native.history_series -> {rss: :bytes, ...}: the unit of each series, in the order in which they are shown. */
VALUE native_history_series(VALUE self) {
    VALUE hash = rb_hash_new();

    for (size_t series = 0; series < MEMSCOPE_HISTORY_SERIES; series++)
        memscope_hash_set(hash, memscope_history_names[series], memscope_symbol(unit_of(series)));
    return rb_obj_freeze(hash);
}

/* Native.history_buckets -> {10 => 360, ...}: the number of buckets of each ring, by the seconds of each bucket. */
VALUE native_history_buckets(VALUE self) {
    VALUE hash = rb_hash_new();

    for (int ring = 0; ring < MEMSCOPE_RING_COUNT; ring++)
        rb_hash_aset(hash, UINT2NUM(memscope_ring_shapes[ring].step_seconds),
                     UINT2NUM(memscope_ring_shapes[ring].buckets));
    return rb_obj_freeze(hash);
}

/* Native.open_history -> true, or a reason if there is no memory. */
VALUE native_open_history(VALUE self) {
    if (memscope_rings_of_this_process() == NULL) {
        rings = memscope_rings_map(memscope_history_units, MEMSCOPE_HISTORY_SERIES);
        owner = getpid();
    }
    return rings == NULL ? memscope_status_reason(MEMSCOPE_NO_MEMORY) : Qtrue;
}

/*
 * Native.add_to_history(values, seconds) -> true if the values were added, false if there is no history, or if
 * `seconds` is before that of an earlier call. values: an Integer or nil by the name of each sampled series. seconds:
 * of CLOCK_BOOTTIME. Writes them into this process's black box, if it has one.
 */
VALUE native_add_to_history(VALUE self, VALUE values, VALUE seconds) {
    uint64_t numbers[MEMSCOPE_HISTORY_SERIES];
    bool added;

    for (size_t series = 0; series < MEMSCOPE_HISTORY_SERIES; series++) {
        VALUE value = rb_hash_lookup(values, memscope_symbol(memscope_history_names[series]));

        numbers[series] = NIL_P(value) ? MEMSCOPE_UNKNOWN : NUM2ULL(value);
    }
    added = memscope_rings_of_this_process() != NULL && memscope_rings_add(rings, NUM2ULL(seconds), numbers);
    if (added)
        memscope_black_box_add(rings);
    return added ? Qtrue : Qfalse;
}

/* Native.mark_history(kind, seconds) -> true if the event was noted. */
VALUE native_mark_history(VALUE self, VALUE kind, VALUE seconds) {
    bool noted =
        memscope_rings_of_this_process() != NULL && memscope_rings_mark(rings, NUM2ULL(seconds), NUM2UINT(kind));

    return noted ? Qtrue : Qfalse;
}

/* Milliseconds since 1970, rounded to whole seconds, so that points keep their time from one reading to the next. */
static int64_t time_of_day(uint64_t seconds, int64_t boot) {
    return (boot + (int64_t)seconds) * 1000;
}

static VALUE ring_to_hash(const struct memscope_rings *from, enum memscope_ring ring, size_t series, int64_t boot) {
    struct memscope_rings_point points[MEMSCOPE_RINGS_MAX_POINTS];
    VALUE min[MEMSCOPE_RINGS_MAX_POINTS], last[MEMSCOPE_RINGS_MAX_POINTS];
    struct memscope_history_ring figures = {.step_seconds = memscope_ring_shapes[ring].step_seconds};
    uint64_t start;
    size_t count = memscope_rings_read(from, ring, series, 0, points, &start);

    for (size_t index = 0; index < count; index++) {
        min[index] = memscope_number_or_nil(points[index].min);
        last[index] = memscope_number_or_nil(points[index].last);
    }
    figures.at = time_of_day(start, boot);
    return memscope_hash_add(memscope_history_ring_hash(&figures),
                             {"min", rb_obj_freeze(rb_ary_new_from_values((long)count, min))},
                             {"last", rb_obj_freeze(rb_ary_new_from_values((long)count, last))});
}

static VALUE curve_to_hash(const struct memscope_rings *from, size_t series, int64_t boot) {
    const struct memscope_history_curve curve = {.id = memscope_text_of(memscope_history_names[series]),
                                                 .unit = memscope_text_of(unit_of(series)),
                                                 .baseline = memscope_rings_baseline(from, series)};
    VALUE list = rb_ary_new();

    for (int ring = 0; ring < MEMSCOPE_RING_COUNT; ring++)
        rb_ary_push(list, ring_to_hash(from, (enum memscope_ring)ring, series, boot));
    return memscope_hash_add(memscope_history_curve_hash(&curve), {"rings", list});
}

static VALUE events_to_array(const struct memscope_rings *from, int64_t boot) {
    struct memscope_rings_event events[MEMSCOPE_RINGS_EVENTS];
    size_t count = memscope_rings_read_events(from, events);
    VALUE list = rb_ary_new_capa((long)count);

    for (size_t index = 0; index < count; index++)
        rb_ary_push(list, memscope_hash_of({"at", LL2NUM(time_of_day(events[index].seconds, boot))},
                                           {"kind", UINT2NUM(events[index].kind)}));
    return list;
}

int64_t memscope_boot_second(void) {
    return ((int64_t)memscope_clock_ns(CLOCK_REALTIME) - (int64_t)memscope_clock_ns(CLOCK_BOOTTIME)) / 1000000000;
}

VALUE memscope_history_of(const struct memscope_rings *from, const uint64_t *last_at) {
    uint64_t first, last;
    int64_t boot;
    VALUE curves = rb_ary_new();

    if (from == NULL || !memscope_rings_span(from, &first, &last))
        return Qnil;
    boot = last_at == NULL ? memscope_boot_second() : (int64_t)(*last_at / 1000 - last);
    for (size_t series = 0; series < MEMSCOPE_HISTORY_SERIES; series++)
        if (memscope_rings_latest(from, series) != MEMSCOPE_UNKNOWN)
            rb_ary_push(curves, curve_to_hash(from, series, boot));
    return memscope_hash_of({"started_at", LL2NUM(time_of_day(first, boot))}, {"curves", curves},
                            {"events", events_to_array(from, boot)});
}

/* Native.history -> {started_at:, curves:, events:, reasons:, cost:}, or nil without a sample or event. Tier T1. */
VALUE native_history(VALUE self) {
    uint64_t begun_ns = memscope_now_ns();
    VALUE body = memscope_history_of(memscope_rings_of_this_process(), NULL);

    return NIL_P(body) ? Qnil : memscope_finish(body, rb_hash_new(), "T1", begun_ns, 0, 0);
}
