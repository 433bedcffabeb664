/*
 * Native.start_object_profile and related methods: the profile of Ruby's objects, called by Memscope::ObjectProfile.
 * Arguments have been checked in Ruby.
 */
#include "bindings/profile_values.h"
#include "bindings/reasons.h"

#include "base/scratch.h"
#include "init.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"
#include "ruby/sample/event_hooks.h"
#include "ruby/sample/frame_texts.h"
#include "ruby/sample/object_sampler.h"
#include "ruby/sample/sampled_objects.h"
#include "ruby/sample/stack_reader.h"
#include "sampling/sampled_stack.h"

#include <math.h>
#include <ruby/ractor.h>

static uint64_t started_ns; /* since the epoch */
static uint32_t session;    /* number of profiles started in this process and its ancestors */

/*
 * A profile that another Ractor has ended, until it is stopped: its last reading, from before that Ractor was created,
 * or the reason if there is none. Otherwise nil. The reading is deeply frozen, so several threads may convert it at a
 * time.
 */
static VALUE ended = Qnil;

/* ---- control ----------------------------------------------------------------------------------------------------- */

/* Native.start_object_profile(budget) -> the profile's number, from 1, or :running, or the reason for no start. */
VALUE native_start_object_profile(VALUE self, VALUE budget) {
    const char *obstacle = NIL_P(ended) ? memscope_object_sampler_start(NUM2DBL(budget)) : "running";

    if (obstacle != NULL)
        return memscope_reason(obstacle);
    started_ns = memscope_clock_ns(CLOCK_REALTIME);
    return UINT2NUM(++session);
}

/* Native.object_profile_session -> the number of the running or last profile, or 0. */
VALUE native_object_profile_session(VALUE self) {
    return UINT2NUM(session);
}

/* Native.stop_object_profile: the profile cannot be read afterwards. */
VALUE native_stop_object_profile(VALUE self) {
    memscope_object_sampler_stop();
    ended = Qnil;
    return Qnil;
}

/* Native.object_profile_runs? */
VALUE native_object_profile_runs(VALUE self) {
    return memscope_object_sampler_runs() || !NIL_P(ended) ? Qtrue : Qfalse;
}

/*
 * Native.watch_ractors(method), Ruby's own Ractor.new: from now on, the hooks for allocations are removed before the
 * main Ractor creates another one.
 */
VALUE native_watch_ractors(VALUE self, VALUE method) {
    memscope_ractors_watch(method);
    return Qnil;
}

static VALUE called_before_ractors = Qnil;

static VALUE call_proc(VALUE callable) {
    return rb_funcall(callable, rb_intern("call"), 0);
}

static void call_before_ractors(void) {
    if (!NIL_P(called_before_ractors))
        memscope_attempt(call_proc, called_before_ractors);
}

/* Native.before_ractors = a Proc or nil, called before the main Ractor creates another one, if that is watched. */
VALUE native_set_before_ractors(VALUE self, VALUE callable) {
    return called_before_ractors = callable;
}

/* Native.ractors_watched? */
VALUE native_ractors_watched(VALUE self) {
    return memscope_ractors_are_watched() ? Qtrue : Qfalse;
}

/* Native.hooks_obstacle -> the reason why Ruby's allocations cannot be hooked now, or nil. */
VALUE native_hooks_obstacle(VALUE self) {
    const char *obstacle = memscope_event_hooks_obstacle();

    return obstacle ? memscope_reason(obstacle) : Qnil;
}

/* Native.next_object_generation -> the number of the generation that begins. */
VALUE native_next_object_generation(VALUE self) {
    return UINT2NUM(memscope_object_sampler_next_generation());
}

void memscope_object_profile_settle(void) {
    bool ran = memscope_object_sampler_runs();

    memscope_object_sampler_settle();
    if (ran && memscope_object_sampler_lost())
        ended = memscope_reason("ractor_unnoticed");
}

VALUE memscope_object_profile_end(void) {
    return RB_TYPE_P(ended, T_HASH) ? memscope_reason("ractor_ended_sampling") : ended;
}

/* ---- frames and stacks ------------------------------------------------------------------------------------------- */

struct scan {
    struct memscope_scratch scratch;
    struct memscope_object_groups groups;
    struct memscope_object_sampler_state state;
    struct memscope_profile_frames frames; /* a word is a text, above its line */
    uint64_t begun_ns;
    double objects, bytes;          /* sums of the numbers that are shown, which are rounded */
    uint64_t samples, without_room; /* all samples, and those whose frames, class or thread found no room */
    bool stop, with_objects;
    bool before_ractor; /* another Ractor is about to be created */
};

static VALUE text_of(uint32_t number) {
    char bytes[MEMSCOPE_TEXT_LIMIT];
    size_t length;

    if (number == 0)
        return Qnil;
    length = memscope_text_copy(&memscope_object_sampler_samples()->texts, number, bytes);
    return rb_utf8_str_new(bytes, (long)length);
}

static VALUE frame_of(uint64_t word, void *unused) {
    uint32_t text = (uint32_t)(word >> 32), line = (uint32_t)word;
    VALUE path, label;

    if (text == 0)
        return memscope_state_frame(MEMSCOPE_STACK_NO_FRAMES);
    if (text == MEMSCOPE_NO_ROOM)
        return memscope_state_frame(MEMSCOPE_STACK_NO_ROOM);
    memscope_frame_text_read(&memscope_object_sampler_samples()->texts, text, &path, &label);
    return memscope_ruby_frame(label, path, line);
}

static VALUE frames_of(struct scan *scan, uint32_t stack) {
    const struct memscope_call_tree *calls = &memscope_object_sampler_samples()->calls;
    VALUE list = rb_ary_new();

    for (uint32_t node = stack; node != 0; node = calls->nodes[node].caller)
        rb_ary_push(list, memscope_number_of_frame(&scan->frames,
                                                   (uint64_t)calls->nodes[node].frame << 32 | calls->nodes[node].line));
    if (stack == 0)
        rb_ary_push(list, memscope_number_of_frame(&scan->frames, 0));
    return rb_obj_freeze(list);
}

static double error_of(const struct scan *scan, const struct memscope_window_sums *sums,
                       const struct memscope_object_group *group, double squares) {
    return sqrt(memscope_window_variance(sums, &scan->state.plan, group->samples, group->objects, squares));
}

/* Estimates are sums of rounded shares, so that the numbers that are shown add up. Returns the shares. */
static VALUE set_estimates(struct scan *scan, struct memscope_stack_figures *figures,
                           const struct memscope_object_group *group) {
    VALUE shares = rb_ary_new_capa((long)group->share_count);
    struct memscope_window_sums objects = {0}, bytes = {0};

    for (size_t index = 0; index < group->share_count; index++) {
        const struct memscope_window_share *share = &group->shares[index];

        memscope_window_sums_add(&objects, nearbyint(share->objects), nearbyint(share->allocations));
        memscope_window_sums_add(&bytes, nearbyint(share->bytes), nearbyint(share->allocations));
        rb_ary_push(shares, rb_obj_freeze(rb_ary_new_from_args(
                                4, UINT2NUM(share->window), memscope_estimate(share->allocations),
                                memscope_estimate(share->objects), memscope_estimate(share->bytes))));
    }
    figures->live_objects = objects.sum;
    figures->live_bytes = bytes.sum;
    figures->error_objects = error_of(scan, &objects, group, 0);
    figures->error_bytes = error_of(scan, &bytes, group, group->squares);
    figures->spread_bytes = sqrt(group->squares);
    scan->objects += objects.sum;
    scan->bytes += bytes.sum;
    scan->samples += group->samples;
    return rb_obj_freeze(shares); /* Field.plain then copies nothing */
}

static bool found_room(const struct memscope_object_group *group) {
    const struct memscope_call_tree *calls = &memscope_object_sampler_samples()->calls;

    for (uint32_t node = group->key.stack; node != 0; node = calls->nodes[node].caller)
        if (calls->nodes[node].frame == MEMSCOPE_NO_ROOM)
            return false;
    return group->key.class_name != MEMSCOPE_NO_ROOM && group->key.thread != MEMSCOPE_NO_ROOM;
}

static VALUE stack_hash(struct scan *scan, const struct memscope_object_group *group) {
    struct memscope_stack_figures figures = memscope_stack_figures_unknown;
    VALUE shares = set_estimates(scan, &figures, group);

    figures.generation = group->key.generation;
    figures.samples = (int64_t)group->samples;
    scan->without_room += found_room(group) ? 0 : group->samples;
    return memscope_hash_add(memscope_stack_figures_hash(&figures), {"frames", frames_of(scan, group->key.stack)},
                             {"class_name", text_of(group->key.class_name)},
                             {"tag", memscope_interned_name(memscope_word(MEMSCOPE_WORD_TAG, group->key.tag, 0))},
                             {"thread", text_of(group->key.thread)}, {"shares", shares});
}

/* ---- the reading ------------------------------------------------------------------------------------------------- */

#define OBJECTS_OF_STACK 64
static long objects_bytes(const struct memscope_object_group *group) {
    uint64_t count = group->samples < OBJECTS_OF_STACK ? group->samples : OBJECTS_OF_STACK;

    return (long)(count * sizeof(struct memscope_sampled_object));
}

/*
 * For each stack, a String of at most OBJECTS_OF_STACK struct memscope_sampled_object. Each String has its room before
 * the samples are read, since an allocation may run a GC, which removes and moves samples.
 */
static VALUE objects_of_stacks(const struct scan *scan) {
    const struct memscope_object_samples *samples = memscope_object_sampler_samples();
    const struct memscope_object_groups *groups = &scan->groups;
    VALUE list = rb_ary_new_capa((long)groups->count);

    for (size_t index = 0; index < groups->count; index++)
        rb_ary_push(list, rb_str_buf_new(objects_bytes(&groups->list[index])));
    for (uint32_t index = 0; index < samples->count; index++) {
        const struct memscope_object_sample *sample = &samples->list[index];
        const struct memscope_sampled_object object = {
            .address = sample->address, .window = sample->window, .epoch = sample->epoch};
        const struct memscope_object_group *group =
            sample->pending ? NULL : memscope_object_groups_find(groups, sample, &scan->state.generations);
        VALUE text = group == NULL ? Qnil : RARRAY_AREF(list, group - groups->list);

        if (!NIL_P(text) && RSTRING_LEN(text) < objects_bytes(group))
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
    memscope_hash_add(body, {"frames", scan->frames.list}, {"stacks", list});
}

#define FEW_WINDOWS 8

static void set_reasons(VALUE reasons, const struct scan *scan) {
    const struct memscope_object_sampler_state *state = &scan->state;

    memscope_set_reason(reasons, "allocated_bytes", "only_live_objects_sampled");
    memscope_set_sampling_reasons(reasons, "live_objects", state);
    if (scan->without_room > 0)
        memscope_set_reason_of(reasons, "stacks", "texts_without_room", ULL2NUM(scan->without_room));
    if (scan->before_ractor)
        memscope_set_reason(reasons, "live_objects", "ractor_ended_sampling");
    if (state->plan.windows < FEW_WINDOWS && memscope_plan_share(&state->plan) < 0.5)
        memscope_set_reason_of(reasons, "error_bytes", "windows_few", ULL2NUM(state->plan.windows));
    if (MEMSCOPE_GC_HOOKS_SLOW_ALLOCATION)
        memscope_set_reason(reasons, "overhead", "gc_hooks_slow_allocation");
}

static VALUE generations_list(const struct memscope_generations *generations, uint64_t *newest) {
    uint32_t list[MEMSCOPE_GENERATIONS];
    size_t count = memscope_generations_list(generations, list);
    VALUE numbers = rb_ary_new_capa((long)count);

    while (count > 0)
        rb_ary_push(numbers, UINT2NUM(list[--count]));
    *newest = list[0];
    return numbers;
}

static VALUE body_of(VALUE argument) {
    struct scan *scan = (struct scan *)argument;
    const struct memscope_sampling_plan *plan = &scan->state.plan;
    struct memscope_profile_figures figures = memscope_profile_figures_unknown;
    VALUE body = rb_hash_new(), reasons = rb_hash_new();

    scan->frames = (struct memscope_profile_frames){rb_ary_new(), rb_hash_new(), frame_of, NULL};
    set_stacks(body, scan);
    memscope_hash_set(body, "generations", generations_list(&scan->state.generations, &figures.generation));
    figures.backend = memscope_text_of("objects");
    figures.running = !scan->stop;
    figures.started_at = (int64_t)(started_ns / 1000000);
    figures.epoch = scan->state.generations.epoch;
    figures.unjudged_generation = memscope_generation_unjudged(&scan->state.generations);
    figures.live_objects = (int64_t)scan->objects;
    figures.live_bytes = (int64_t)scan->bytes;
    figures.samples = (int64_t)scan->samples;
    figures.windows = plan->windows;
    figures.allocations = plan->stood_for;
    figures.windows_share = memscope_plan_share(plan);
    figures.equal_windows = memscope_plan_equal_windows(plan);
    memscope_set_members(body, &memscope_profile_figures_record, &figures, NULL);
    memscope_hash_set(body, "overhead", memscope_sampling_overhead_hash(&scan->state.overhead));
    set_reasons(reasons, scan);
    memscope_finish(body, reasons, "T3", scan->begun_ns, 0, scan->scratch.used);
    RB_GC_GUARD(scan->frames.numbers);
    return body;
}

static VALUE close_scan(VALUE argument) {
    struct scan *scan = (struct scan *)argument;

    memscope_object_groups_release(memscope_object_sampler_samples(), &scan->groups);
    memscope_scratch_close(&scan->scratch);
    return Qnil;
}

/* Returns the last reading of a profile that another Ractor has ended. */
static VALUE read_profile(struct scan scan) {
    VALUE last;

    scan.begun_ns = memscope_now_ns();
    memscope_object_profile_settle();
    if (!memscope_object_sampler_runs()) {
        last = ended;
        ended = scan.stop ? Qnil : ended;
        return last;
    }
    if (memscope_scratch_open(&scan.scratch) != MEMSCOPE_OK)
        return memscope_status_reason(MEMSCOPE_NO_MEMORY);
    scan.state = memscope_object_sampler_state();
    if (scan.stop)
        memscope_object_sampler_stop();
    if (memscope_sampled_objects_group(&scan.state, &scan.scratch, &scan.groups) != MEMSCOPE_OK) {
        memscope_scratch_close(&scan.scratch);
        return memscope_status_reason(MEMSCOPE_NO_MEMORY);
    }
    return rb_ensure(body_of, (VALUE)&scan, close_scan, (VALUE)&scan);
}

/*
 * Native.object_profile(stop) -> the running profile as a Hash, stopped if stop is true. nil if none is running, a
 * reason if there is no memory.
 */
VALUE native_object_profile(VALUE self, VALUE stop) {
    return read_profile((struct scan){.stop = RTEST(stop)});
}

/*
 * Native.object_profile_with_objects -> the running profile as above, plus :objects: for each stack, a String of struct
 * memscope_sampled_object. Native.heap_graph finds paths to the objects of such a String.
 */
VALUE native_object_profile_with_objects(VALUE self) {
    return NIL_P(ended) ? read_profile((struct scan){.with_objects = true}) : memscope_object_profile_end();
}

static VALUE read_before_ractor(VALUE unused) {
    return rb_ractor_make_shareable(read_profile((struct scan){.stop = true, .before_ractor = true}));
}

/* Keeps a last reading of the running profile, and stops it. */
static void end_before_ractor(void) {
    int state = 0;

    if (!memscope_object_sampler_runs())
        return;
    ended = rb_protect(read_before_ractor, Qnil, &state);
    if (state == 0)
        return;
    memscope_object_sampler_stop();
    ended = memscope_status_reason(MEMSCOPE_NO_MEMORY);
    if (!RB_SPECIAL_CONST_P(rb_errinfo()) && RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eStandardError)))
        rb_set_errinfo(Qnil);
    else
        rb_jump_tag(state); /* a signal, or Thread#kill: Ractor.new does not begin */
}

void Init_memscope_object_profile(void) {
    rb_gc_register_address(&ended);
    rb_gc_register_address(&called_before_ractors);
    memscope_before_ractors(end_before_ractor);
    memscope_before_ractors(call_before_ractors);
}
