#include "ruby/ractors.h"

#include "base/own_memory.h"
#include "ruby/ruby_private.h"
#include "values.h"

#include <pthread.h>
#include <ruby/debug.h>
#include <ruby/ractor.h>

static rb_ractor_local_key_t main_ractor_key;

bool memscope_in_main_ractor(void) {
    return rb_ractor_local_storage_ptr(main_ractor_key) != NULL;
}

/* ---- Ruby's count of Ractors ----------------------------------------------------------------------------------- */

/* In the VM's struct, NULL if it was not found. Other Ractors change it, but only while it is above 1. */
static const volatile unsigned int *count;
static bool sought;

static bool created; /* Ractor.new has been called, while it was watched */

static VALUE count_by_method(void) {
    return rb_check_funcall(rb_const_get(rb_cObject, rb_intern("Ractor")), rb_intern("count"), 0, 0);
}

/* If no other Ractor is alive, finds the count by way of the current thread. Checks each word on the way. */
static void find_count(void) {
    VALUE thread = rb_thread_current();
    const struct memscope_ruby_thread *known = rb_check_typeddata(thread, RTYPEDDATA_TYPE(thread));
    struct memscope_own_memory memory = {.descriptor = -1, .pipe_in = -1};
    struct memscope_ruby_vm vm;
    struct memscope_ruby_list only;
    uintptr_t list = known->vm + offsetof(struct memscope_ruby_vm, ractors);

    if (count_by_method() != INT2FIX(1))
        return;
    sought = true;
    if (known->self == thread && memscope_own_memory_open(&memory) == MEMSCOPE_OK &&
        memscope_own_memory_read(&memory, known->vm, &vm, sizeof vm) && vm.ractors.next == vm.ractors.previous &&
        memscope_own_memory_read(&memory, vm.ractors.next, &only, sizeof only) && only.next == list &&
        only.previous == list && vm.ractor_count == 1)
        count = &((const struct memscope_ruby_vm *)known->vm)->ractor_count; // NOLINT(performance-no-int-to-ptr)
    memscope_own_memory_close(&memory);
}

#define MAX_ATTEMPTS 4

/*
 * Ractor.count is a Ruby method: before it returns, Ruby may switch to other threads, which allocate, begin garbage
 * collections and create Ractors. So it is called again if anything was allocated during the call, and it is not called
 * if nothing has been allocated since the last call, because a new Ractor is an object.
 */
static bool others_by_method(void) {
    static size_t alone_at = SIZE_MAX;
    VALUE allocations = memscope_symbol("total_allocated_objects");
    size_t allocated = rb_gc_stat(allocations);

    for (int asked = 0; allocated != alone_at && asked < MAX_ATTEMPTS; asked++) {
        VALUE alive = count_by_method();

        if (FIXNUM_P(alive) && FIX2INT(alive) > 1)
            return true;
        alone_at = allocated;
        allocated = rb_gc_stat(allocations);
    }
    return false;
}

bool memscope_other_ractors(void) {
    if (!count && !sought)
        find_count();
    return count ? *count > 1 : others_by_method();
}

bool memscope_ractors_alive(void) {
    return count ? *count > 1 : created;
}

/* ---- Ractor.new -------------------------------------------------------------------------------------------------- */

#define FUNCTIONS 4

static void (*functions[FUNCTIONS])(void);
static size_t function_count;
static unsigned int beginning; /* calls of Ractor.new that have not returned */
static VALUE watch = Qnil;     /* the TracePoint */

void memscope_before_ractors(void (*function)(void)) {
    if (function_count < FUNCTIONS)
        functions[function_count++] = function;
}

/* Before 4.0, Ruby calls this in each Ractor that creates another one. */
static void on_new(VALUE point, void *unused) {
    if (!memscope_in_main_ractor())
        return;
    if (rb_tracearg_event_flag(rb_tracearg_from_tracepoint(point)) == RUBY_EVENT_RETURN) {
        beginning -= beginning > 0;
        return;
    }
    created = true;
    beginning++;
    for (size_t index = 0; index < function_count; index++)
        functions[index]();
}

/* The child has only the thread that forked. */
static void in_child(void) {
    beginning = 0;
}

void memscope_ractors_watch(VALUE method) {
    VALUE options = rb_hash_new();

    if (memscope_ractors_are_watched())
        return;
    if (NIL_P(watch)) {
        pthread_atfork(NULL, NULL, in_child);
        rb_gc_register_address(&watch);
        watch = rb_tracepoint_new(Qnil, RUBY_EVENT_CALL | RUBY_EVENT_RETURN, on_new, NULL);
    }
    rb_hash_aset(options, memscope_symbol("target"), method);
    rb_funcallv_kw(watch, rb_intern("enable"), 1, &options, RB_PASS_KEYWORDS);
}

bool memscope_ractors_are_watched(void) {
    return !NIL_P(watch) && RTEST(rb_tracepoint_enabled_p(watch));
}

bool memscope_ractors_were_created(void) {
    return created;
}

bool memscope_ractor_begins(void) {
    return beginning > 0;
}

void memscope_ractors_learn(void) {
    main_ractor_key = rb_ractor_local_storage_ptr_newkey(NULL);
    rb_ractor_local_storage_ptr_set(main_ractor_key, &main_ractor_key);
}
