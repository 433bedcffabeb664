#include "ruby/tags.h"

#include "ruby/interned.h"
#include "ruby/ruby_private.h"

#include <ruby/debug.h>
#include <ruby/thread.h>
#include <stdlib.h>

/*
 * A tag belongs to a fiber and is kept as a fiber-local (Thread#[]). malloc reads only the calling thread's copy, which
 * exists in any state of the process and is updated when the thread switches to another fiber.
 */
static ID tag_key;
static __thread uint32_t tag;

uint32_t memscope_current_tag(void) {
    return tag;
}

static uint32_t tag_of_fiber(VALUE thread) {
    VALUE kept = rb_thread_local_aref(thread, tag_key);

    return FIXNUM_P(kept) ? (uint32_t)FIX2ULONG(kept) : 0;
}

/* A frozen thread accepts no fiber-locals: its fibers share one tag. */
void memscope_set_tag(uint32_t index) {
    VALUE thread = rb_thread_current();

    if (!OBJ_FROZEN(thread))
        rb_thread_local_aset(thread, tag_key, index ? UINT2NUM(index) : Qnil);
    tag = index;
}

/*
 * A new fiber, which has no frame yet, inherits the tag of the fiber that resumes it; a fiber that has run before is
 * still in the method in which it yielded. Ruby calls this in the fiber that it switches to, unless that fiber was
 * suspended inside a TracePoint (vm_trace.c 3.1.2, rb_exec_event_hooks): then the tag of the fiber that was left
 * stays in effect until the next switch.
 */
static void follow_fiber(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE owner) {
    VALUE frame;
    int line;

    if (tag != 0 && rb_profile_frames(0, 1, &frame, &line) == 0)
        memscope_set_tag(tag);
    else
        tag = tag_of_fiber(rb_thread_current());
}

#if MEMSCOPE_THREADS_MIGRATE
static void follow_thread(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused) {
    tag = tag_of_fiber(data->thread);
}
#endif

/*
 * With RUBY_MN_THREADS=1 a Ruby thread may move to another native thread. Threads of other Ractors always may, but they
 * have no tags.
 */
static void follow_threads(void) {
#if MEMSCOPE_THREADS_MIGRATE
    const char *setting = getenv("RUBY_MN_THREADS");

    if (setting && atoi(setting) > 0)
        rb_internal_thread_add_event_hook(follow_thread, RUBY_INTERNAL_THREAD_EVENT_RESUMED, NULL);
#endif
}

/*
 * Called when the first tag is set. Costs 0.05 µs per fiber switch and nothing else: the event adds no instructions to
 * iseqs.
 */
static void begin_following(void) {
    if (tag_key)
        return;
    tag_key = rb_intern("__memscope_tag__");
    rb_add_event_hook(follow_fiber, RUBY_EVENT_FIBER_SWITCH, Qnil);
    follow_threads();
}

uint32_t memscope_tag_of(const char *name, size_t length) {
    begin_following();
    return memscope_intern_tag(name, length);
}
