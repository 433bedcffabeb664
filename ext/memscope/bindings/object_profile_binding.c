/*
 * Native.start_object_profile and its like: the profile of Ruby's objects, called by Memscope::ObjectProfile. Arguments
 * have been checked in Ruby.
 */
#include "bindings/profile_values.h"
#include "bindings/reasons.h"

#include "base/scratch.h"
#include "init.h"
#include "ruby/frame_texts.h"
#include "ruby/held_memory.h"
#include "ruby/object_sampler.h"
#include "ruby/ruby_private.h"
#include "ruby/stack_reader.h"
#include "sampling/object_groups.h"
#include "sampling/sampled_stack.h"

#include <math.h>

static uint64_t started_ns; /* since the epoch */
static uint32_t session;    /* profiles started in this process and the ones that it was forked from */

/* ---- control ----------------------------------------------------------------------------------------------------- */

/* Native.start_object_profile(budget) -> the profile's number, from 1; :running; or a reason why it could not start. */
static VALUE native_start_object_profile(VALUE self, VALUE budget) {
    switch (memscope_object_sampler_start(NUM2DBL(budget))) {
    case MEMSCOPE_OBJECTS_RUNNING:
        return memscope_symbol("running");
    case MEMSCOPE_OBJECTS_NO_MEMORY:
        return memscope_status_reason(MEMSCOPE_NO_MEMORY);
    case MEMSCOPE_OBJECTS_NO_MARKS:
        return memscope_reason("marks_unknown");
    case MEMSCOPE_OBJECTS_NO_JOBS:
        return memscope_reason("jobs_taken");
    case MEMSCOPE_OBJECTS_READY:
        break;
    }
    started_ns = memscope_clock_ns(CLOCK_REALTIME);
    return UINT2NUM(++session);
}

/* Native.object_profile_session -> the number of the running or last profile; 0 if there was none. */
static VALUE native_object_profile_session(VALUE self) {
    return UINT2NUM(session);
}

/* Native.stop_object_profile: nothing can be read of it afterwards. */
static VALUE native_stop_object_profile(VALUE self) {
    if (memscope_object_sampler_runs())
        memscope_object_sampler_stop();
    return Qnil;
}

/* Native.object_profile_runs? */
static VALUE native_object_profile_runs(VALUE self) {
    return memscope_object_sampler_runs() ? Qtrue : Qfalse;
}

/* Native.next_object_generation -> the number of the generation that begins. */
static VALUE native_next_object_generation(VALUE self) {
    return UINT2NUM(memscope_object_sampler_next_generation());
}

/* ---- frames and stacks ------------------------------------------------------------------------------------------- */

struct scan {
    struct memscope_scratch scratch;
    struct memscope_object_groups groups;
    struct memscope_object_sampler_state state;
    VALUE frames, numbers; /* an Array of Hashes, one per frame; the index in it, by text and line */
    uint64_t begun_ns;
    double objects, bytes;          /* sums of the shown, rounded numbers */
    uint64_t samples, without_room; /* samples, and those of a place, class or thread that found no room */
    bool stop, with_objects;
};

static VALUE text_of(uint32_t number) {
    char bytes[MEMSCOPE_TEXT_LIMIT];
    size_t length;

    if (number == 0)
        return Qnil;
    length = memscope_text_copy(&memscope_object_sampler_samples()->texts, number, bytes);
    return rb_utf8_str_new(bytes, (long)length);
}

static VALUE frame_of(uint32_t text, uint32_t line) {
    VALUE path, label;

    if (text == 0)
        return memscope_state_frame(MEMSCOPE_STACK_NO_FRAMES);
    if (text == MEMSCOPE_NO_ROOM)
        return memscope_state_frame(MEMSCOPE_STACK_NO_ROOM);
    memscope_frame_text_read(&memscope_object_sampler_samples()->texts, text, &path, &label);
    return memscope_ruby_frame(label, path, line);
}

static VALUE number_of_frame(struct scan *scan, uint32_t text, uint32_t line) {
    VALUE key = ULL2NUM((uint64_t)text << 32 | line), number = rb_hash_aref(scan->numbers, key);

    if (!NIL_P(number))
        return number;
    number = LONG2NUM(RARRAY_LEN(scan->frames));
    rb_ary_push(scan->frames, frame_of(text, line));
    rb_hash_aset(scan->numbers, key, number);
    return number;
}

static VALUE frames_of(struct scan *scan, uint32_t stack) {
    const struct memscope_call_tree *calls = &memscope_object_sampler_samples()->calls;
    VALUE list = rb_ary_new();

    for (uint32_t node = stack; node != 0; node = calls->nodes[node].caller)
        rb_ary_push(list, number_of_frame(scan, calls->nodes[node].frame, calls->nodes[node].line));
    if (stack == 0)
        rb_ary_push(list, number_of_frame(scan, 0, 0));
    return list;
}

static VALUE error_of(const struct scan *scan, const struct memscope_window_sums *sums,
                      const struct memscope_object_group *group) {
    return memscope_estimate(sqrt(memscope_window_variance(sums, &scan->state.plan, group->samples, group->objects)));
}

/* Estimates are sums of rounded shares, so that what is shown sums up. */
static void set_estimates(struct scan *scan, VALUE hash, const struct memscope_object_group *group) {
    VALUE shares = rb_ary_new_capa((long)group->share_count);
    struct memscope_window_sums objects = {0}, bytes = {0};

    for (size_t index = 0; index < group->share_count; index++) {
        const struct memscope_window_share *share = &group->shares[index];

        memscope_window_sums_add(&objects, nearbyint(share->objects), nearbyint(share->allocations));
        memscope_window_sums_add(&bytes, nearbyint(share->bytes), nearbyint(share->allocations));
        rb_ary_push(shares, rb_ary_new_from_args(4, UINT2NUM(share->window), memscope_estimate(share->allocations),
                                                 memscope_estimate(share->objects), memscope_estimate(share->bytes)));
    }
    memscope_hash_set(hash, "live_objects", memscope_estimate(objects.sum));
    memscope_hash_set(hash, "live_bytes", memscope_estimate(bytes.sum));
    memscope_hash_set(hash, "error_objects", error_of(scan, &objects, group));
    memscope_hash_set(hash, "error_bytes", error_of(scan, &bytes, group));
    memscope_hash_set(hash, "shares", shares);
    scan->objects += objects.sum;
    scan->bytes += bytes.sum;
    scan->samples += group->samples;
}

static bool found_room(const struct memscope_object_group *group) {
    const struct memscope_call_tree *calls = &memscope_object_sampler_samples()->calls;

    for (uint32_t node = group->stack; node != 0; node = calls->nodes[node].caller)
        if (calls->nodes[node].frame == MEMSCOPE_NO_ROOM)
            return false;
    return group->class_name != MEMSCOPE_NO_ROOM && group->thread != MEMSCOPE_NO_ROOM;
}

static VALUE stack_hash(struct scan *scan, const struct memscope_object_group *group) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "frames", frames_of(scan, group->stack));
    memscope_hash_set(hash, "class_name", text_of(group->class_name));
    memscope_hash_set(hash, "tag", memscope_interned_name(memscope_word(MEMSCOPE_WORD_TAG, group->tag, 0)));
    memscope_hash_set(hash, "thread", text_of(group->thread));
    memscope_hash_set(hash, "generation", UINT2NUM(group->generation));
    memscope_hash_set(hash, "samples", ULL2NUM(group->samples));
    set_estimates(scan, hash, group);
    scan->without_room += found_room(group) ? 0 : group->samples;
    return hash;
}

/* ---- the reading ------------------------------------------------------------------------------------------------- */

static struct memscope_held_walk *walk;

/* Bytes of a tracked object: its slot, and what it says it holds through malloc. */
static size_t bytes_of(const struct memscope_object_sample *sample) {
    return sample->slot_bytes + memscope_held_bytes_of(walk, (VALUE)sample->address, sample->slot_bytes);
}

static enum memscope_status read_samples(struct scan *scan) {
    struct memscope_held_memory held;
    enum memscope_status status;

    walk = memscope_scratch_take(&scan->scratch, sizeof *walk);
    if (walk == NULL)
        return MEMSCOPE_NO_MEMORY;
    memscope_heap_held_open(walk, &held);
    status = memscope_object_samples_read(memscope_object_sampler_samples(), &scan->scratch, bytes_of,
                                          memscope_object_generation_of, (uint32_t)scan->state.plan.windows,
                                          scan->state.last, 1 - scan->state.plan.unwatched, &scan->groups);
    memscope_heap_held_close(walk);
    walk = NULL;
    return status;
}

static VALUE overhead(const struct scan *scan) {
    const struct memscope_object_samples *samples = memscope_object_sampler_samples();
    const struct memscope_object_sampler_state *state = &scan->state;
    double spent = (double)state->spent_ns + state->plan.watching_ns * (double)state->watched;
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "samples_taken", ULL2NUM(samples->taken));
    memscope_hash_set(hash, "nanoseconds", memscope_estimate(spent));
    memscope_hash_set(hash, "table_bytes", SIZET2NUM(state->bytes));
    memscope_hash_set(hash, "dropped_samples", ULL2NUM(samples->dropped));
    memscope_hash_set(hash, "lost_frees", INT2FIX(0));
    memscope_hash_set(hash, "budget", DBL2NUM(state->plan.budget));
    memscope_hash_set(hash, "cpu_share", state->cpu_ns > 0 ? DBL2NUM(spent / (double)state->cpu_ns) : Qnil);
    memscope_hash_set(hash, "gc_nanoseconds", ULL2NUM(state->gc_ns));
    memscope_hash_set(hash, "watched_share",
                      state->allocations > 0 ? DBL2NUM((double)state->watched / (double)state->allocations) : Qnil);
    memscope_hash_set(hash, "thinned", ULL2NUM(samples->thinned));
    memscope_hash_set(hash, "rearmed", ULL2NUM(state->rearmed));
    memscope_hash_set(hash, "missed_collections", ULL2NUM(state->missed));
    return hash;
}

/* For each stack a String of struct memscope_sampled_object, of at most OBJECTS_OF_STACK. */
#define OBJECTS_OF_STACK 64
static VALUE objects_of_stacks(const struct scan *scan) {
    const struct memscope_object_samples *samples = memscope_object_sampler_samples();
    const struct memscope_object_groups *groups = &scan->groups;
    VALUE list = rb_ary_new_capa((long)groups->count);

    for (size_t index = 0; index < groups->count; index++)
        rb_ary_push(list, rb_str_new(NULL, 0));
    for (uint32_t index = 0; index < samples->count; index++) {
        const struct memscope_object_sample *sample = &samples->list[index];
        const struct memscope_sampled_object object = {
            .address = sample->address, .window = sample->window, .epoch = sample->epoch};
        const struct memscope_object_group *group =
            sample->pending ? NULL : memscope_object_groups_find(groups, sample, memscope_object_generation_of);
        VALUE text = group == NULL ? Qnil : RARRAY_AREF(list, group - groups->list);

        if (!NIL_P(text) && RSTRING_LEN(text) < (long)(OBJECTS_OF_STACK * sizeof object))
            rb_str_cat(text, (const char *)&object, sizeof object);
    }
    return list;
}

static void set_stacks(VALUE body, struct scan *scan) {
    VALUE list = rb_ary_new_capa((long)scan->groups.count);

    for (size_t index = 0; index < scan->groups.count; index++)
        rb_ary_push(list, stack_hash(scan, &scan->groups.list[index]));
    if (scan->with_objects)
        memscope_hash_set(body, "objects", objects_of_stacks(scan));
    memscope_hash_set(body, "frames", scan->frames);
    memscope_hash_set(body, "stacks", list);
    memscope_hash_set(body, "live_objects", ULL2NUM((uint64_t)scan->objects));
    memscope_hash_set(body, "live_bytes", ULL2NUM((uint64_t)scan->bytes));
    memscope_hash_set(body, "samples", ULL2NUM(scan->samples));
}

#define FEW_WINDOWS 8

static void set_reasons(VALUE reasons, const struct scan *scan) {
    const struct memscope_object_sampler_state *state = &scan->state;
    const struct memscope_object_samples *samples = memscope_object_sampler_samples();

    memscope_set_reason(reasons, "allocated_bytes", "only_live_objects_sampled");
    if (samples->dropped > 0 || state->missed > 0)
        memscope_hash_set(reasons, "samples", memscope_reason_of("samples_dropped", ULL2NUM(samples->dropped)));
    if (scan->without_room > 0)
        memscope_hash_set(reasons, "stacks", memscope_reason_of("texts_without_room", ULL2NUM(scan->without_room)));
    if (state->plan.out_of_reach)
        memscope_hash_set(reasons, "live_objects", memscope_reason_of("reach_cut", ULL2NUM(MEMSCOPE_LONGEST_REACH)));
    if (state->shared)
        memscope_hash_set(reasons, "live_objects",
                          memscope_reason_of("ractor_ended_sampling", memscope_estimate(state->plan.stood_for)));
    if (state->plan.windows < FEW_WINDOWS && memscope_plan_share(&state->plan) < 0.5)
        memscope_hash_set(reasons, "error_bytes", memscope_reason_of("windows_few", ULL2NUM(state->plan.windows)));
    if (MEMSCOPE_GC_HOOKS_SLOW_ALLOCATION)
        memscope_set_reason(reasons, "overhead", "gc_hooks_slow_allocation");
}

static void set_generations(VALUE body, const struct memscope_generations *generations) {
    uint32_t list[MEMSCOPE_GENERATIONS];
    size_t count = memscope_generations_list(generations, list);
    VALUE numbers = rb_ary_new_capa((long)count);

    while (count > 0)
        rb_ary_push(numbers, UINT2NUM(list[--count]));
    memscope_hash_set(body, "generations", numbers);
    memscope_hash_set(body, "generation", UINT2NUM(list[0]));
    memscope_hash_set(body, "epoch", UINT2NUM(generations->epoch));
    memscope_hash_set(body, "unjudged_generation", UINT2NUM(memscope_generation_unjudged(generations)));
}

static VALUE body_of(VALUE argument) {
    struct scan *scan = (struct scan *)argument;
    const struct memscope_sampling_plan *plan = &scan->state.plan;
    VALUE body = rb_hash_new(), reasons = rb_hash_new();
    uint64_t gvl_ns;

    scan->frames = rb_ary_new();
    scan->numbers = rb_hash_new();
    memscope_hash_set(body, "backend", memscope_symbol("objects"));
    memscope_hash_set(body, "rate_bytes", Qnil);
    memscope_hash_set(body, "running", scan->stop ? Qfalse : Qtrue);
    memscope_hash_set(body, "started_at", ULL2NUM(started_ns / 1000000));
    set_generations(body, &scan->state.generations);
    memscope_hash_set(body, "windows", ULL2NUM(plan->windows));
    memscope_hash_set(body, "allocations", memscope_estimate(plan->stood_for));
    memscope_hash_set(body, "windows_share", DBL2NUM(memscope_plan_share(plan)));
    memscope_hash_set(body, "equal_windows", DBL2NUM(memscope_plan_equal_windows(plan)));
    set_stacks(body, scan);
    memscope_hash_set(body, "overhead", overhead(scan));
    set_reasons(reasons, scan);
    memscope_hash_set(body, "reasons", reasons);
    gvl_ns = memscope_now_ns() - scan->begun_ns;
    memscope_hash_set(body, "cost", memscope_cost("T3", gvl_ns, gvl_ns, scan->scratch.used));
    RB_GC_GUARD(scan->numbers);
    return body;
}

static VALUE close_scan(VALUE argument) {
    struct scan *scan = (struct scan *)argument;

    memscope_object_groups_release(memscope_object_sampler_samples(), &scan->groups);
    memscope_scratch_close(&scan->scratch);
    return Qnil;
}

static VALUE read_profile(bool stop, bool with_objects) {
    struct scan scan = {.begun_ns = memscope_now_ns(), .stop = stop, .with_objects = with_objects};

    memscope_object_sampler_settle();
    if (!memscope_object_sampler_runs())
        return Qnil;
    if (memscope_scratch_open(&scan.scratch) != MEMSCOPE_OK)
        return memscope_status_reason(MEMSCOPE_NO_MEMORY);
    scan.state = memscope_object_sampler_state();
    if (scan.stop)
        memscope_object_sampler_stop();
    if (read_samples(&scan) != MEMSCOPE_OK) {
        memscope_scratch_close(&scan.scratch);
        return memscope_status_reason(MEMSCOPE_NO_MEMORY);
    }
    return rb_ensure(body_of, (VALUE)&scan, close_scan, (VALUE)&scan);
}

/*
 * Native.object_profile(stop) -> the running profile as a Hash, stopped if stop is true; nil if none is running; a
 * reason if there is no memory to read it.
 */
static VALUE native_object_profile(VALUE self, VALUE stop) {
    return read_profile(RTEST(stop), false);
}

/*
 * Native.object_profile_with_objects -> the running profile as above, plus :objects: for each stack, a String of struct
 * memscope_sampled_object. Native.heap_graph finds paths to the objects of such a String.
 */
static VALUE native_object_profile_with_objects(VALUE self) {
    return read_profile(false, true);
}

void Init_memscope_object_profile(void) {
    rb_define_singleton_method(rb_mMemscopeNative, "start_object_profile", native_start_object_profile, 1);
    rb_define_singleton_method(rb_mMemscopeNative, "stop_object_profile", native_stop_object_profile, 0);
    rb_define_singleton_method(rb_mMemscopeNative, "object_profile_session", native_object_profile_session, 0);
    rb_define_singleton_method(rb_mMemscopeNative, "object_profile_runs?", native_object_profile_runs, 0);
    rb_define_singleton_method(rb_mMemscopeNative, "next_object_generation", native_next_object_generation, 0);
    rb_define_singleton_method(rb_mMemscopeNative, "object_profile", native_object_profile, 1);
    rb_define_singleton_method(rb_mMemscopeNative, "object_profile_with_objects", native_object_profile_with_objects,
                               0);
}
