/*
 * Native.run_lever and Native.tune: everything that changes the allocator. The Ruby code has checked the arguments. The
 * engine acts without the GVL.
 *
 * An interrupt (Thread#raise, a timeout) that arrives while the engine acts is raised afterwards.
 */
#include "bindings/reasons.h"

#include "init.h"
#include "malloc/allocator.h"
#include "malloc/jemalloc_control.h"
#include "malloc/levers.h"

#include <unistd.h>

/* ---- one purge at a time ------------------------------------------------------------------------------------- */

/*
 * The pid of the process in which a purge or a tuning is in progress, else 0. A forked child inherits its parent's
 * value.
 */
static rb_pid_t owner;

/* A no-op in a forked child, which does not own the purge. */
static VALUE release(VALUE unused) {
    (void)unused;
    if (owner == getpid())
        owner = 0;
    return Qnil;
}

/*
 * Native.with_exclusive_purge { … } -> true, or false without a yield while a purge or a tuning is in progress. Written
 * in C so that no interrupt (Thread#raise, a timeout) can arrive between acquiring and rb_ensure, or before the
 * release.
 */
static VALUE native_with_exclusive_purge(VALUE self) {
    if (owner == getpid())
        return Qfalse;
    owner = getpid();
    rb_ensure(rb_yield, Qnil, release, Qnil);
    return Qtrue;
}

/* ---- levers --------------------------------------------------------------------------------------------------- */

/*
 * Native.levers -> {tcache: nil, trim: :lever_of_glibc, …}: for each lever, the reason why the allocator lacks it, or
 * nil.
 */
static VALUE native_levers(VALUE self) {
    VALUE levers = rb_hash_new();

    for (int lever = 0; lever < MEMSCOPE_LEVER_COUNT; lever++) {
        const char *missing = memscope_lever_missing((enum memscope_lever)lever);

        memscope_hash_set(levers, memscope_lever_name((enum memscope_lever)lever),
                          missing ? memscope_reason(missing) : Qnil);
    }
    return levers;
}

struct lever_run {
    enum memscope_lever lever;
    enum memscope_status status;
    uint64_t wall_ns;
};

static void run_lever(void *argument) {
    struct lever_run *run = argument;
    uint64_t start = memscope_now_ns();

    run->status = memscope_lever_run(run->lever);
    run->wall_ns = memscope_now_ns() - start;
}

static enum memscope_lever lever_of(VALUE name) {
    int lever = 0;

    while (lever < MEMSCOPE_LEVER_COUNT && memscope_symbol(memscope_lever_name((enum memscope_lever)lever)) != name)
        lever++;
    return (enum memscope_lever)lever;
}

/* The reason why nothing was done, or nil. */
static VALUE failure(const struct lever_run *run) {
    if (run->status == MEMSCOPE_OK)
        return Qnil;
    if (run->lever == MEMSCOPE_LEVER_TCACHE && run->status == MEMSCOPE_NOT_FOUND)
        return memscope_reason("thread_cache_absent");
    return memscope_status_reason(run->status);
}

/* Native.run_lever(lever) -> [nanoseconds, reason or nil]. The tcache lever flushes the calling thread's cache. */
static VALUE native_run_lever(VALUE self, VALUE name) {
    struct lever_run run = {.lever = lever_of(name)};

    memscope_without_gvl(run_lever, &run);
    return rb_assoc_new(ULL2NUM(run.wall_ns), failure(&run));
}

/*
 * Native.collectable_bytes -> bytes that the collect lever would return to the kernel, or nil if the allocator does not
 * report them.
 */
static VALUE native_collectable_bytes(VALUE self) {
    uint64_t bytes;

    return memscope_lever_collectable_bytes(&bytes) ? ULL2NUM(bytes) : Qnil;
}

/* ---- tuning ----------------------------------------------------------------------------------------------------- */

#define KINDS 2 /* number of values of enum memscope_jemalloc_decay_kind */

static const char *const kind_names[KINDS] = {
    [MEMSCOPE_JEMALLOC_DIRTY] = "dirty_decay_ms",
    [MEMSCOPE_JEMALLOC_MUZZY] = "muzzy_decay_ms",
};
static const char *const old_kind_names[KINDS] = {
    [MEMSCOPE_JEMALLOC_DIRTY] = "old_dirty_decay_ms",
    [MEMSCOPE_JEMALLOC_MUZZY] = "old_muzzy_decay_ms",
};

/* One decay time, before and after the tuning. */
struct decay {
    bool known;
    int64_t old_ms, ms;
};

struct arena_decay {
    unsigned index;
    struct decay times[KINDS];
};

struct tuning {
    bool sets[KINDS], sets_background_thread;
    int64_t ms[KINDS];
    bool background_thread;
    struct arena_decay *arenas; /* `count` entries, by index */
    unsigned count;
    struct arena_decay later;
    bool old_background_thread, new_background_thread;
    enum memscope_status background_status, set_background_status;
};

static void tune_arena(const struct tuning *tuning, unsigned index, struct arena_decay *arena) {
    arena->index = index;
    for (int kind = 0; kind < KINDS; kind++) {
        struct decay *decay = &arena->times[kind];
        enum memscope_jemalloc_decay_kind which = (enum memscope_jemalloc_decay_kind)kind;

        decay->known = memscope_jemalloc_read_decay_ms(index, which, &decay->old_ms) == MEMSCOPE_OK;
        decay->ms = decay->old_ms;
        if (!decay->known || !tuning->sets[kind])
            continue;
        memscope_jemalloc_set_decay_ms(index, which, tuning->ms[kind]);
        memscope_jemalloc_read_decay_ms(index, which, &decay->ms);
    }
}

static void tune(void *argument) {
    struct tuning *tuning = argument;

    tuning->background_status = memscope_jemalloc_read_background_thread(&tuning->old_background_thread);
    if (tuning->sets_background_thread)
        tuning->set_background_status = memscope_jemalloc_set_background_thread(tuning->background_thread);
    memscope_jemalloc_read_background_thread(&tuning->new_background_thread);
    tune_arena(tuning, MEMSCOPE_LATER_ARENAS, &tuning->later);
    for (unsigned index = 0; index < tuning->count; index++)
        tune_arena(tuning, index, &tuning->arenas[index]);
}

static VALUE decay_to_hash(const struct arena_decay *arena) {
    VALUE hash = rb_hash_new();

    if (arena->index != MEMSCOPE_LATER_ARENAS)
        memscope_hash_set(hash, "index", UINT2NUM(arena->index));
    for (int kind = 0; kind < KINDS; kind++) {
        const struct decay *decay = &arena->times[kind];

        memscope_hash_set(hash, old_kind_names[kind], decay->known ? LL2NUM(decay->old_ms) : Qnil);
        memscope_hash_set(hash, kind_names[kind], decay->known ? LL2NUM(decay->ms) : Qnil);
    }
    return hash;
}

static bool is_in_use(const struct arena_decay *arena) {
    return arena->times[MEMSCOPE_JEMALLOC_DIRTY].known || arena->times[MEMSCOPE_JEMALLOC_MUZZY].known;
}

static VALUE arenas_to_array(const struct tuning *tuning, VALUE reasons) {
    VALUE list = rb_ary_new();
    unsigned unused = 0;

    for (unsigned index = 0; index < tuning->count; index++) {
        if (is_in_use(&tuning->arenas[index]))
            rb_ary_push(list, decay_to_hash(&tuning->arenas[index]));
        else
            unused++;
    }
    if (unused > 0)
        memscope_hash_set(reasons, "arenas",
                          memscope_reason_of("arenas_unused", UINT2NUM(unused), UINT2NUM(tuning->count)));
    return list;
}

static void set_background_thread(VALUE body, VALUE reasons, const struct tuning *tuning) {
    bool known = tuning->background_status == MEMSCOPE_OK;

    memscope_hash_set(body, "old_background_thread", !known ? Qnil : tuning->old_background_thread ? Qtrue : Qfalse);
    memscope_hash_set(body, "background_thread", !known ? Qnil : tuning->new_background_thread ? Qtrue : Qfalse);
    if (tuning->background_status == MEMSCOPE_NOT_FOUND)
        memscope_set_reason(reasons, "background_thread", "background_threads_absent");
    else if (tuning->set_background_status == MEMSCOPE_IO)
        memscope_set_reason(reasons, "background_thread", "background_threads_failed");
}

static VALUE tuning_to_hash(const struct tuning *tuning, uint64_t start_ns, uint64_t without_gvl_ns) {
    enum memscope_allocator_name allocator = memscope_allocator_current()->name;
    bool tunable = allocator == MEMSCOPE_ALLOCATOR_JEMALLOC;
    VALUE body = rb_hash_new(), reasons = rb_hash_new();

    memscope_hash_set(body, "allocator", memscope_symbol(memscope_allocator_name_text(allocator)));
    memscope_hash_set(body, "arenas", arenas_to_array(tuning, reasons));
    memscope_hash_set(body, "new_arena_defaults", tunable ? decay_to_hash(&tuning->later) : Qnil);
    set_background_thread(body, reasons, tuning);
    if (!tunable)
        memscope_set_reason(reasons, "arenas", "tuning_unsupported");
    return memscope_finish(body, reasons, "T1", start_ns, without_gvl_ns, 0);
}

/*
 * Native.tune(dirty_decay_ms, muzzy_decay_ms, background_thread) -> the body of a Tuning. nil leaves a setting as it
 * is. For jemalloc only.
 */
static VALUE native_tune(VALUE self, VALUE dirty_ms, VALUE muzzy_ms, VALUE background_thread) {
    uint64_t start = memscope_now_ns(), without_gvl_ns;
    const VALUE ms[KINDS] = {[MEMSCOPE_JEMALLOC_DIRTY] = dirty_ms, [MEMSCOPE_JEMALLOC_MUZZY] = muzzy_ms};
    struct tuning tuning = {.sets_background_thread = !NIL_P(background_thread),
                            .background_thread = RTEST(background_thread)};
    VALUE room, body;

    for (int kind = 0; kind < KINDS; kind++) {
        tuning.sets[kind] = !NIL_P(ms[kind]);
        tuning.ms[kind] = NIL_P(ms[kind]) ? 0 : NUM2LL(ms[kind]);
    }
    tuning.count = memscope_jemalloc_arena_count();
    tuning.arenas = ALLOCV_N(struct arena_decay, room, tuning.count);
    without_gvl_ns = memscope_without_gvl(tune, &tuning);
    body = tuning_to_hash(&tuning, start, without_gvl_ns);
    ALLOCV_END(room);
    return body;
}

void Init_memscope_levers(void) {
    rb_define_const(rb_mMemscopeNative, "MAX_DECAY_MS", LL2NUM(MEMSCOPE_JEMALLOC_MAX_DECAY_MS));
    rb_define_singleton_method(rb_mMemscopeNative, "with_exclusive_purge", native_with_exclusive_purge, 0);
    rb_define_singleton_method(rb_mMemscopeNative, "levers", native_levers, 0);
    rb_define_singleton_method(rb_mMemscopeNative, "run_lever", native_run_lever, 1);
    rb_define_singleton_method(rb_mMemscopeNative, "collectable_bytes", native_collectable_bytes, 0);
    rb_define_singleton_method(rb_mMemscopeNative, "tune", native_tune, 3);
}
