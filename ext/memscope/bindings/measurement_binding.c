/*
 * Native.measure { } and related methods, called by Memscope::Measurement. The block is called from here, so that no
 * Ruby code of memscope runs while allocations are counted.
 */
#include "bindings/profile_binding.h"
#include "bindings/reasons.h"

#include "base/copy.h"
#include "init.h"
#include "kernel/process.h"
#include "malloc/allocator.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"
#include "ruby/sample/allocation_trace.h"
#include "sampling/import_counter.h"

/* The running measurement's number and Thread, 0 and nil if there is none, as in a forked child (halt_measurement). */
static unsigned long running;
static VALUE running_in = Qnil;

/*
 * GC.start as it was when memscope was loaded: a test may stub it. Unlike rb_gc, it also collects if GC.disable was
 * called, and runs finalizers.
 */
static VALUE gc_start = Qnil;

struct moment {
    uint64_t objects;          /* allocated so far, by all threads */
    uint64_t allocated, freed; /* bytes through malloc, by this thread */
};

struct measurement {
    unsigned long number;
    bool objects;         /* count them by class and line */
    bool process;         /* of all threads, with addresses in the answer */
    const char *obstacle; /* the reason why they are not counted, or NULL */
    enum memscope_status reset, peak, malloc;
    struct memscope_thread_bytes thread_bytes;
    bool by_imports; /* memscope counts malloc by the imports, otherwise the allocator does */
    bool profiled;   /* malloc is not counted: a malloc profile has patched the imports */
    bool migrated;   /* this Ruby thread ended the block on another native thread */
    bool disturbed;  /* garbage of other threads was left when the block began */
    bool beside;     /* other threads allocated during the block, or, if that was not counted, may have */
    struct moment begun, ended, collected;
    uint64_t started_ns, peak_bytes, spent_ns;
    VALUE value;
};

/* Allocates nothing. */
static struct moment read_moment(const struct measurement *measurement) {
    bool counts = measurement->malloc == MEMSCOPE_OK;

    return (struct moment){
        .objects = memscope_objects_allocated(),
        .allocated = counts ? *measurement->thread_bytes.allocated : 0,
        .freed = counts ? *measurement->thread_bytes.freed : 0,
    };
}

#define STALE_WORDS 4096

/*
 * Overwrites the machine stack below this frame. Ruby marks every word that looks like an address there, so words of
 * earlier calls would keep garbage alive in the next collection. That garbage would appear as retained or, if it is
 * older than the block, as freed by the block.
 */
static __attribute__((noinline)) VALUE clear_stack(void) {
    volatile VALUE words[STALE_WORDS];

    for (size_t index = 0; index < STALE_WORDS; index++)
        words[index] = Qnil;
    return words[0];
}

static void collect(void) {
    if (memscope_is_copy())
        memscope_heap_collect();
    else
        rb_method_call(0, NULL, gc_start);
}

#define COLLECTIONS 4

/*
 * Collects until no other thread allocates: GC.start may switch to another thread at its end, but seldom does so right
 * after a thread has switched back. Returns true if the last collection was undisturbed.
 */
static bool collect_undisturbed(void) {
    const struct measurement uncounted = {.malloc = MEMSCOPE_UNSUPPORTED};
    uint64_t before = 0, now = read_moment(&uncounted).objects;

    for (int count = 0; count < COLLECTIONS && now - before > MEMSCOPE_FEW_OBJECTS; count++) {
        before = now;
        collect();
        now = read_moment(&uncounted).objects;
    }
    return now - before <= MEMSCOPE_FEW_OBJECTS;
}

/* ---- malloc ------------------------------------------------------------------------------------------------------ */

/* Counts malloc by the allocator's own counters, or by the imports if the allocator has none, or if by_imports. */
static void count_malloc(struct measurement *measurement, bool by_imports) {
    if (!by_imports)
        measurement->malloc = memscope_thread_bytes_find(&measurement->thread_bytes);
    if (!by_imports && measurement->malloc == MEMSCOPE_OK)
        return;
    measurement->by_imports = true;
    measurement->profiled = memscope_profile.running && memscope_profile.backend == MEMSCOPE_BACKEND_IMPORTS;
    measurement->malloc = measurement->profiled ? MEMSCOPE_UNSUPPORTED : memscope_import_counter_start();
    if (measurement->malloc == MEMSCOPE_OK)
        measurement->thread_bytes = memscope_import_counter_bytes();
}

static bool has_migrated(const struct measurement *measurement) {
    struct memscope_thread_bytes now = {0};

    if (measurement->by_imports)
        now = memscope_import_counter_bytes();
    else if (memscope_thread_bytes_find(&now) != MEMSCOPE_OK)
        return true;
    return now.allocated != measurement->thread_bytes.allocated;
}

/* ---- the block --------------------------------------------------------------------------------------------------- */

static void begin(struct measurement *measurement) {
    measurement->beside = !rb_thread_alone();
    measurement->obstacle = measurement->objects ? memscope_trace_start(measurement->process) : NULL;
    count_malloc(measurement, measurement->by_imports);
    measurement->reset = memscope_peak_reset();
    measurement->begun = read_moment(measurement); /* the first call interns the keys */
    measurement->spent_ns = memscope_now_ns() - measurement->started_ns;
    measurement->begun = read_moment(measurement);
    memscope_trace_count(true);
}

/* If the Ruby thread has moved to another native thread, malloc's counters are not read: their thread may be gone. */
static void end(struct measurement *measurement) {
    memscope_trace_count(false);
    measurement->beside |= !rb_thread_alone();
    measurement->migrated = measurement->malloc == MEMSCOPE_OK && has_migrated(measurement);
    if (measurement->migrated)
        measurement->malloc = MEMSCOPE_UNSUPPORTED;
    measurement->ended = read_moment(measurement);
    measurement->peak = memscope_peak_read(&measurement->peak_bytes);
    collect();
    measurement->collected = read_moment(measurement);
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* [path, lineno, class, allocated objects, allocated bytes, retained objects, retained bytes] */
static VALUE row_of(const struct memscope_allocation_group *group, const struct memscope_names *names) {
    VALUE path = memscope_name_value(names, group->path_name), line = NIL_P(path) ? Qnil : UINT2NUM(group->key.line);

    return rb_ary_new_from_args(7, path, line, memscope_name_value(names, group->class_name),
                                ULL2NUM(group->allocated_objects), ULL2NUM(group->allocated_bytes),
                                ULL2NUM(group->retained_objects), ULL2NUM(group->retained_bytes));
}

#define ADDRESSES 100

/* The addresses of at most 100 retained objects of a group, as words in a String. */
static VALUE addresses_of(const struct memscope_allocation_counts *counts, size_t group) {
    const struct memscope_allocation *logged = counts->log;
    uint64_t left = counts->groups[group].retained_objects;
    VALUE words = rb_str_new(NULL, 0);

    left = left < ADDRESSES ? left : ADDRESSES;
    for (size_t index = 0; index < counts->log_count && left > 0; index++) {
        if (logged[index].group != group)
            continue;
        rb_str_cat(words, (const char *)&logged[index].address, sizeof logged[index].address);
        left--;
    }
    return words;
}

static VALUE rows_of(const struct memscope_trace_result *result, bool addresses) {
    const struct memscope_allocation_group *groups = result->counts->groups;
    VALUE rows = rb_ary_new(), row;

    for (size_t index = 0; index < result->counts->group_count; index++) {
        if (groups[index].allocated_objects == 0)
            continue;
        rb_ary_push(rows, row = row_of(&groups[index], result->names));
        if (addresses)
            rb_ary_push(row, addresses_of(result->counts, index));
    }
    return rows;
}

static void set_trace(VALUE body, VALUE reasons, struct measurement *measurement) {
    struct memscope_trace_result result = memscope_trace_read();

    measurement->spent_ns += result.gc_ns;
    measurement->beside = result.others > 0;
    memscope_hash_add(body, {"rows", rows_of(&result, measurement->process)},
                      {"knows_retained", result.knows_retained ? Qtrue : Qfalse});
    memscope_set_unasked_reason(reasons, "retained_bytes", result.held);
    memscope_set_unasked_reason(reasons, "allocated_bytes", result.held);
    if (!result.knows_retained) {
        memscope_set_reason(reasons, "retained_objects", "collections_unseen");
        memscope_set_reason(reasons, "retained_bytes", "collections_unseen");
        memscope_set_reason(reasons, "allocated_bytes", "allocations_by_slot");
    } else if (result.unsized > 0) {
        memscope_set_reason_of(reasons, "allocated_bytes", "data_by_slot", ULL2NUM(result.unsized));
    }
    if (result.others > 0)
        memscope_set_reason_of(reasons, "allocated_objects", "other_threads_left_out", ULL2NUM(result.others));
}

static void set_objects(VALUE body, VALUE reasons, struct measurement *measurement) {
    memscope_hash_set(body, "objects", ULL2NUM(measurement->ended.objects - measurement->begun.objects));
    if (measurement->obstacle != NULL)
        memscope_set_reason(reasons, "classes", measurement->obstacle);
    else if (memscope_trace_runs())
        set_trace(body, reasons, measurement);
    else if (measurement->objects)
        memscope_set_reason(reasons, "classes", "ractor_ended_counting");
}

static void set_malloc(VALUE body, VALUE reasons, const struct measurement *measurement) {
    const struct moment *begun = &measurement->begun, *ended = &measurement->ended, *last = &measurement->collected;
    VALUE reason;

    if (measurement->malloc == MEMSCOPE_OK) {
        memscope_hash_add(body, {"malloc_allocated_bytes", ULL2NUM(ended->allocated - begun->allocated)},
                          {"malloc_retained_bytes",
                           LL2NUM((int64_t)(last->allocated - begun->allocated - (last->freed - begun->freed)))});
        if (measurement->disturbed || measurement->beside)
            memscope_set_reason(reasons, "malloc_retained_bytes", "garbage_of_all_threads");
        return;
    }
    if (measurement->migrated)
        reason = memscope_reason("thread_migrated");
    else if (measurement->profiled)
        reason = memscope_reason("imports_profiled");
    else if (measurement->malloc == MEMSCOPE_NOT_FOUND)
        reason = memscope_reason("imports_taken");
    else
        reason = memscope_reason_of("threads_uncounted", memscope_status_reason(measurement->malloc));
    memscope_hash_add(reasons, {"malloc_allocated_bytes", reason}, {"malloc_retained_bytes", reason});
}

static void set_peak(VALUE body, VALUE reasons, const struct measurement *measurement) {
    if (measurement->reset != MEMSCOPE_OK)
        memscope_hash_set(reasons, "peak_bytes", memscope_unread("/proc/self/clear_refs", measurement->reset));
    else if (measurement->peak != MEMSCOPE_OK)
        memscope_hash_set(reasons, "peak_bytes", memscope_unread("/proc/self/status", measurement->peak));
    else
        memscope_hash_set(body, "peak_bytes", ULL2NUM(measurement->peak_bytes));
}

static VALUE body_of(struct measurement *measurement) {
    VALUE body = rb_hash_new(), reasons = rb_hash_new();

    set_objects(body, reasons, measurement);
    set_malloc(body, reasons, measurement);
    set_peak(body, reasons, measurement);
    return memscope_hash_add(body, {"reasons", reasons});
}

/* ---- methods ----------------------------------------------------------------------------------------------------- */

static VALUE run(VALUE argument) {
    struct measurement *measurement = (struct measurement *)argument;
    VALUE body = Qnil;
    uint64_t ended_ns;

    measurement->started_ns = memscope_now_ns();
    clear_stack();
    measurement->disturbed = !collect_undisturbed(); /* here as after the block: both collections find the same stack */
    begin(measurement);
    measurement->value = rb_yield_values(0);
    clear_stack(); /* before later frames keep stale addresses in words that they do not write */
    ended_ns = memscope_now_ns();
    if (running == measurement->number) {
        end(measurement);
        body = body_of(measurement);
        measurement->spent_ns += memscope_now_ns() - ended_ns;
        memscope_hash_set(body, "cost", memscope_cost("T3", measurement->spent_ns, measurement->spent_ns, 0));
    }
    return rb_ary_new_from_args(2, measurement->value, body);
}

VALUE native_halt_measurement(VALUE self) {
    memscope_trace_stop();
    memscope_import_counter_stop();
    running = 0;
    running_in = Qnil;
    return Qnil;
}

static VALUE finish(VALUE argument) {
    return running == ((struct measurement *)argument)->number ? native_halt_measurement(Qnil) : Qnil;
}

/*
 * Native.measure(objects, by_imports) { } -> [the block's value, a Hash of results, or nil in a child that was forked
 * within the block], or :running if another measurement is running. `objects`: true counts objects by class and line,
 * :process those of all threads, each row with addresses of some that are retained. `by_imports`: true counts malloc by
 * the imports even if the allocator counts it.
 */
VALUE native_measure(VALUE self, VALUE objects, VALUE by_imports) {
    static unsigned long last;
    struct measurement measurement = {.objects = RTEST(objects),
                                      .process = objects == memscope_symbol("process"),
                                      .by_imports = RTEST(by_imports),
                                      .value = Qnil};

    if (running != 0)
        return memscope_symbol("running");
    measurement.number = running = ++last;
    running_in = rb_thread_current();
    return rb_ensure(run, (VALUE)&measurement, finish, (VALUE)&measurement);
}

/* Native.clear_stack: clears the stack that the frames of the next call will use. */
VALUE native_clear_stack(VALUE self) {
    return clear_stack();
}

/* Native.collect_garbage: runs the original GC.start, even if a test stubs it, and again if other threads allocate. */
VALUE native_collect_garbage(VALUE self) {
    collect_undisturbed();
    return Qnil;
}

/* Native.measuring -> the Thread in which a measurement is running, or nil. */
VALUE native_measuring(VALUE self) {
    return running_in;
}

void Init_memscope_measurement(void) {
    rb_gc_register_address(&running_in);
    rb_gc_register_address(&gc_start);
    memscope_before_ractors(memscope_trace_stop);
    gc_start = rb_obj_method(rb_mGC, memscope_symbol("start"));
}
