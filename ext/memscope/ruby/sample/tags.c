#include "ruby/sample/tags.h"

#include "base/scratch.h"
#include "malloc/allocator.h"
#include "ruby/ruby_private.h"
#include "ruby/sample/interned.h"
#include "sampling/tag_allocations.h"

#include <pthread.h>
#include <ruby/debug.h>
#include <ruby/thread.h>
#include <stdlib.h>

/*
 * A tag belongs to a fiber and is kept as a fiber-local (Thread#[]). malloc reads only the calling thread's copy, which
 * exists in any state of the process and is updated when the thread switches to another fiber.
 */
static ID tag_key;
static __thread uint32_t tag;

static struct memscope_tag_runs *runs; /* a lasting mapping, so that a forked child continues its own copy */
static uint32_t life;                  /* number of forks from the process of the first run to this one */

uint32_t memscope_current_tag(void) {
    return tag;
}

/* Code that copies all fiber-locals of a thread can set this one to anything. */
static uint32_t tag_of_fiber(VALUE thread) {
    VALUE kept = rb_thread_local_aref(thread, tag_key);

    return FIXNUM_P(kept) && FIX2ULONG(kept) < MEMSCOPE_TAGS ? (uint32_t)FIX2ULONG(kept) : 0;
}

/* ---- bytes allocated through malloc ---------------------------------------------------------------------------- */

static enum memscope_status bytes_status;         /* as of the first run */
static __thread struct memscope_thread_bytes own; /* of this native thread */
static __thread uint64_t charged;                 /* allocated bytes already charged, to a tag or to none */

enum memscope_status memscope_tag_bytes_status(void) {
    return bytes_status;
}

/* Charges the current tag with this native thread's allocations since the last charge: two loads, a few adds. */
static void charge(void) {
    uint64_t now;

    if (bytes_status != MEMSCOPE_OK || !runs)
        return;
    if (!own.allocated && memscope_thread_bytes_find(&own) != MEMSCOPE_OK)
        return;
    now = *own.allocated;
    if (tag != 0)
        runs[tag].malloc_bytes += now - charged;
    charged = now;
}

/* ---- the tag of a fiber ------------------------------------------------------------------------------------------ */

static void change_tag(uint32_t index) {
    charge();
    tag = index;
}

/* A frozen thread accepts no fiber-locals: its fibers share one tag. */
static void set_tag(uint32_t index) {
    VALUE thread = rb_thread_current();

    if (!OBJ_FROZEN(thread))
        rb_thread_local_aset(thread, tag_key, index ? UINT2NUM(index) : Qnil);
    change_tag(index);
}

/*
 * A new fiber, which has no frame yet, inherits the tag of the fiber that resumes it. A fiber that has run before is
 * still in the method in which it yielded. Ruby calls this in the fiber that it switches to, unless that fiber was
 * suspended inside a TracePoint (vm_trace.c 3.1.2, rb_exec_event_hooks), where the previous fiber's tag stays in effect
 * until the next switch.
 */
static void follow_fiber(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE owner) {
    VALUE frame;
    int line;

    if (tag != 0 && rb_profile_frames(0, 1, &frame, &line) == 0)
        set_tag(tag);
    else
        change_tag(tag_of_fiber(rb_thread_current()));
}

/* Ruby reuses native threads: the previous Ruby thread may have ended with its tag still set. */
static void begin_thread(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE owner) {
    change_tag(0);
}

#if MEMSCOPE_THREADS_MIGRATE
static void follow_thread(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused) {
    change_tag(tag_of_fiber(data->thread));
}
#endif

/*
 * With RUBY_MN_THREADS=1 a Ruby thread may move to another native thread. Threads of other Ractors may always move, but
 * they have no tags.
 */
static void follow_threads(void) {
#if MEMSCOPE_THREADS_MIGRATE
    const char *setting = getenv("RUBY_MN_THREADS");

    if (setting && atoi(setting) > 0)
        rb_internal_thread_add_event_hook(follow_thread, RUBY_INTERNAL_THREAD_EVENT_RESUMED, NULL);
#endif
}

/* Async-signal-safe. */
static void in_child(void) {
    life++;
    for (uint32_t index = 0; index < MEMSCOPE_TAGS; index++)
        if (runs[index].ended != runs[index].begun)
            runs[index].ended = runs[index].begun;
}

/* Without memory, runs are not counted. */
static void begin_counting(void) {
    struct memscope_thread_bytes found;

    bytes_status = memscope_thread_bytes_find(&found);
    runs = memscope_lasting_map(MEMSCOPE_TAGS * sizeof *runs);
    if (runs && pthread_atfork(NULL, NULL, in_child) != 0)
        runs = NULL;
}

/*
 * Called when the first tag is set. Costs 0.05 µs per fiber switch and new thread, and nothing else: the events add no
 * instructions to iseqs.
 */
static void begin_following(void) {
    if (tag_key)
        return;
    tag_key = rb_intern("__memscope_tag__");
    begin_counting();
    rb_add_event_hook(follow_fiber, RUBY_EVENT_FIBER_SWITCH, Qnil);
    rb_add_event_hook(begin_thread, RUBY_EVENT_THREAD_BEGIN, Qnil);
    follow_threads();
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

struct memscope_tag_run memscope_tag_begin(const char *name, size_t length) {
    struct memscope_tag_run run = {.before = tag};

    begin_following();
    run.life = life;
    run.tag = memscope_intern_tag(name, length);
    if (runs)
        runs[run.tag].begun++;
    set_tag(run.tag);
    return run;
}

void memscope_tag_end(const struct memscope_tag_run *run) {
    set_tag(run->before);
    if (runs && run->life == life && runs[run->tag].ended < runs[run->tag].begun) /* a continuation may end it twice */
        runs[run->tag].ended++;
}

const struct memscope_tag_runs *memscope_tag_runs(void) {
    return runs;
}

void memscope_tag_runs_begin_profile(void) {
    for (uint32_t index = 0; runs && index < MEMSCOPE_TAGS; index++)
        if (runs[index].begun > 0)
            runs[index].half_runs_before = runs[index].begun + runs[index].ended;
}
