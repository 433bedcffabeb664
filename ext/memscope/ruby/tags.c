/*
 * Memscope.tag: what the fiber that runs is for. All but memscope_current_tag is called by Ruby, with the GVL, and
 * never inside malloc.
 */
#include "ruby/interned.h"

#include "init.h"
#include "ruby/ruby_private.h"
#include "ruby/stack_reader.h"

#include <ruby/debug.h>
#include <ruby/thread.h>
#include <stdlib.h>

/*
 * A tag is a fiber's: where it is kept while others run, under a name of Thread#[]. What malloc looks at is a copy,
 * which is there in any state of the process; it is taken where a thread goes on with another fiber.
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

/* A frozen thread keeps nothing: its fibers share its tag. */
static void set_tag(uint32_t index) {
    VALUE thread = rb_thread_current();

    if (!OBJ_FROZEN(thread))
        rb_thread_local_aset(thread, tag_key, index ? UINT2NUM(index) : Qnil);
    tag = index;
}

/*
 * A fiber that begins takes over the tag of the one that resumes it: it has no frame yet, while one that has run before
 * is in the method that it has yielded in. Called by Ruby in the fiber that goes on, but not where it left off inside
 * of a TracePoint (vm_trace.c 3.1.2, rb_exec_event_hooks): then the other fiber's tag counts until the next switch.
 */
static void follow_fiber(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE owner) {
    VALUE frame;
    int line;

    if (tag != 0 && rb_profile_frames(0, 1, &frame, &line) == 0)
        set_tag(tag);
    else
        tag = tag_of_fiber(rb_thread_current());
}

#if MEMSCOPE_THREADS_MIGRATE
static void follow_thread(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused) {
    tag = tag_of_fiber(data->thread);
}
#endif

/* With RUBY_MN_THREADS=1 a thread goes on in another native thread. (Other Ractors, which always do, have no tags.) */
static void follow_threads(void) {
#if MEMSCOPE_THREADS_MIGRATE
    const char *setting = getenv("RUBY_MN_THREADS");

    if (setting && atoi(setting) > 0)
        rb_internal_thread_add_event_hook(follow_thread, RUBY_INTERNAL_THREAD_EVENT_RESUMED, NULL);
#endif
}

/* From the first tag on, for good: 0.05 microseconds a switch, and nothing else (no event that code is compiled for).
 */
static void begin_following(void) {
    if (tag_key)
        return;
    tag_key = rb_intern("__memscope_tag__");
    rb_add_event_hook(follow_fiber, RUBY_EVENT_FIBER_SWITCH, Qnil);
    follow_threads();
}

static VALUE yield_nothing(VALUE unused) {
    return rb_yield_values(0); /* a lambda takes no nil for nothing */
}

static VALUE restore_tag(VALUE before) {
    set_tag(NUM2UINT(before));
    return Qnil;
}

/* Native.tag(name) { … } -> the block's value. The name's first 64 bytes count. */
static VALUE native_tag(VALUE self, VALUE name) {
    uint32_t before = tag;

    begin_following();
    set_tag(memscope_intern_tag(RSTRING_PTR(name), (size_t)RSTRING_LEN(name)));
    return rb_ensure(yield_nothing, Qnil, restore_tag, UINT2NUM(before));
}

void Init_memscope_malloc_profile_tags(void) {
    rb_define_module_function(rb_mMemscopeNative, "tag", native_tag, 1);
}
