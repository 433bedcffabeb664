/*
 * Native.tag, called by Memscope.tag, and Native.tags: counts and samples by tag, called by Memscope::Tags. Arguments
 * have been checked in Ruby.
 */
#include "bindings/profile_values.h"
#include "bindings/reasons.h"

#include "base/scratch.h"
#include "init.h"
#include "ruby/sample/sampled_objects.h"
#include "ruby/sample/stack_reader.h"
#include "ruby/sample/tags.h"
#include "sampling/sampled_stack.h"
#include "sampling/tag_objects.h"

#include <string.h>

/* ---- Native.tag -------------------------------------------------------------------------------------------------- */

static VALUE yield_nothing(VALUE unused) {
    return rb_yield_values(0); /* rb_yield(Qnil) would pass nil, which a lambda without parameters rejects */
}

static VALUE end_run(VALUE run) {
    memscope_tag_end((const struct memscope_tag_run *)run);
    return Qnil;
}

/* Native.tag(name) { … } -> the block's value. Only the first 64 bytes of the name matter. */
VALUE native_tag(VALUE self, VALUE name) {
    struct memscope_tag_run run = memscope_tag_begin(RSTRING_PTR(name), (size_t)RSTRING_LEN(name));

    return rb_ensure(yield_nothing, Qnil, end_run, (VALUE)&run);
}

/* ---- Native.tags ------------------------------------------------------------------------------------------------- */

/* By tag, except the marks. */
struct tag_numbers {
    struct memscope_tag_runs runs[MEMSCOPE_TAGS];
    struct memscope_tag_objects objects[MEMSCOPE_TAGS];
    double allocated[MEMSCOPE_TAGS];
    uint64_t counted[MEMSCOPE_TAGS];
    struct memscope_tag_mark start, mark; /* copies, where mark is that of the last but one major GC, if judged */
};

/* Everything is read before a Ruby object is made, since an allocation may start a GC, which changes these numbers. */
struct reading {
    struct memscope_scratch scratch;
    bool running; /* a profile of objects is running */
    bool judged;  /* running, and two major GCs have run since the profile began */
    struct memscope_object_sampler_state state;
    struct tag_numbers *numbers;
    uint64_t begun_ns;
};

static struct memscope_windows_at windows_at(const struct memscope_sampling_plan *plan, double last) {
    return (struct memscope_windows_at){
        .window = (uint32_t)plan->windows, .last = last, .watched = 1 - plan->unwatched};
}

static enum memscope_status read_samples(struct reading *reading) {
    enum memscope_status status;

    if (!memscope_sampled_sizes_open(&reading->scratch))
        return MEMSCOPE_NO_MEMORY;
    status = memscope_tag_objects_read(memscope_object_sampler_samples(), &reading->scratch, memscope_sampled_size,
                                       windows_at(&reading->state.plan, reading->state.last),
                                       windows_at(&reading->numbers->mark.plan, reading->numbers->mark.last),
                                       reading->judged ? reading->numbers->mark.epoch : 0, reading->numbers->objects);
    memscope_sampled_sizes_close();
    return status;
}

static enum memscope_status read_profile(struct reading *reading) {
    struct tag_numbers *numbers = reading->numbers;
    struct memscope_object_tags tags = memscope_object_sampler_tags();

    reading->state = memscope_object_sampler_state();
    reading->judged = tags.judged != NULL;
    numbers->start = *tags.start;
    if (tags.judged)
        numbers->mark = *tags.judged;
    for (uint32_t tag = 0; tag < MEMSCOPE_TAGS; tag++)
        numbers->allocated[tag] = memscope_tag_allocations_of(tags.allocations, tag, tags.stands_for,
                                                              reading->state.last, &numbers->counted[tag]);
    return read_samples(reading);
}

static enum memscope_status read_all(struct reading *reading) {
    const struct memscope_tag_runs *runs = memscope_tag_runs();

    reading->numbers = memscope_scratch_take(&reading->scratch, sizeof *reading->numbers);
    if (reading->numbers == NULL)
        return MEMSCOPE_NO_MEMORY;
    if (runs)
        memcpy(reading->numbers->runs, runs, sizeof reading->numbers->runs);
    return reading->running ? read_profile(reading) : MEMSCOPE_OK;
}

static VALUE windows_hash(const struct memscope_sampling_plan *plan) {
    return memscope_hash_of({"windows", ULL2NUM(plan->windows)}, {"allocations", memscope_estimate(plan->stood_for)},
                            {"windows_share", DBL2NUM(memscope_plan_share(plan))},
                            {"equal_windows", DBL2NUM(memscope_plan_equal_windows(plan))});
}

/* [window, allocations, objects, samples] of each window, rounded, so that the numbers that are shown add up. */
static VALUE shares_of(const struct memscope_tag_objects *objects) {
    VALUE list = rb_ary_new_capa((long)objects->judged_count);

    for (size_t index = 0; index < objects->judged_count; index++) {
        const struct memscope_window_share *share = &objects->judged[index];

        rb_ary_push(
            list, rb_obj_freeze(rb_ary_new_from_args(4, UINT2NUM(share->window), memscope_estimate(share->allocations),
                                                     memscope_estimate(share->objects), UINT2NUM(share->samples))));
    }
    return rb_obj_freeze(list);
}

static VALUE half_runs(uint64_t now, uint64_t before) {
    return DBL2NUM((double)(now - before) / 2);
}

static void set_objects(VALUE hash, const struct reading *reading, uint32_t tag) {
    const struct tag_numbers *numbers = reading->numbers;
    const struct memscope_tag_runs *runs = &numbers->runs[tag];
    const struct memscope_tag_objects *objects = &numbers->objects[tag];

    memscope_hash_add(
        hash, {"profiled_runs", half_runs(runs->begun + runs->ended, numbers->start.half_runs[tag])},
        {"counted", ULL2NUM(numbers->counted[tag])}, {"allocated_objects", DBL2NUM(numbers->allocated[tag])},
        {"live_samples", ULL2NUM(objects->samples)}, {"live_objects", memscope_estimate(objects->objects)},
        {"live_bytes", memscope_estimate(objects->bytes)});
    if (reading->judged)
        memscope_hash_add(hash, {"judged_runs", half_runs(numbers->mark.half_runs[tag], numbers->start.half_runs[tag])},
                          {"samples", ULL2NUM(objects->judged_samples)}, {"shares", shares_of(objects)});
}

static VALUE tag_hash(const struct reading *reading, uint32_t tag) {
    const struct memscope_tag_runs *runs = &reading->numbers->runs[tag];
    bool counted = memscope_tag_bytes_status() == MEMSCOPE_OK;
    VALUE hash =
        memscope_hash_of({"name", memscope_interned_name(memscope_word(MEMSCOPE_WORD_TAG, tag, 0))},
                         {"runs", ULL2NUM(runs->begun)}, {"running", ULL2NUM(runs->begun - runs->ended)},
                         {"malloc_allocated_bytes", counted ? ULL2NUM(runs->malloc_bytes) : Qnil},
                         {"malloc_runs", half_runs(runs->begun + runs->ended, counted ? 0 : runs->half_runs_before)});

    if (reading->running)
        set_objects(hash, reading, tag);
    return hash;
}

static VALUE body_of(VALUE argument) {
    struct reading *reading = (struct reading *)argument;
    VALUE body = rb_hash_new(), list = rb_ary_new(), reasons = rb_hash_new(), end = memscope_object_profile_end();

    for (uint32_t tag = 1; tag < MEMSCOPE_TAGS; tag++)
        if (reading->numbers->runs[tag].begun > 0)
            rb_ary_push(list, tag_hash(reading, tag));
    memscope_hash_set(body, "tags", list);
    if (reading->running)
        memscope_hash_set(body, "profiled", windows_hash(&reading->state.plan));
    if (reading->judged)
        memscope_hash_set(body, "judged", windows_hash(&reading->numbers->mark.plan));
    if (reading->running)
        memscope_set_sampling_reasons(reasons, "profiled", &reading->state);
    else if (!NIL_P(end))
        memscope_hash_set(reasons, "profiled", end);
    return memscope_finish(body, reasons, "T2", reading->begun_ns, 0, reading->scratch.used);
}

static VALUE close_reading(VALUE argument) {
    memscope_scratch_close(&((struct reading *)argument)->scratch);
    return Qnil;
}

/*
 * Native.tags -> counts by tag, as a Hash, with the samples of a running profile of objects. A reason if there is no
 * memory to read it.
 */
VALUE native_tags(VALUE self) {
    struct reading reading = {.begun_ns = memscope_now_ns()};
    enum memscope_status status;

    memscope_object_profile_settle();
    reading.running = memscope_object_sampler_runs();
    status = memscope_scratch_open(&reading.scratch);
    if (status == MEMSCOPE_OK)
        status = read_all(&reading);
    if (status == MEMSCOPE_OK)
        return rb_ensure(body_of, (VALUE)&reading, close_reading, (VALUE)&reading);
    memscope_scratch_close(&reading.scratch);
    return memscope_status_reason(status);
}

/* Native.tags_begun? -> true if Memscope.tag was called in this process, or in a process from which it was forked. */
VALUE native_tags_begun(VALUE self) {
    return memscope_tag_runs() ? Qtrue : Qfalse;
}
