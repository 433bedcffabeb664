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
VALUE native_with_exclusive_purge(VALUE self) {
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
VALUE native_levers(VALUE self) {
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
VALUE native_run_lever(VALUE self, VALUE name) {
    struct lever_run run = {.lever = lever_of(name)};

    memscope_without_gvl(run_lever, &run);
    return rb_assoc_new(ULL2NUM(run.wall_ns), failure(&run));
}

/*
 * Native.collectable_bytes -> bytes that the collect lever would return to the kernel, or nil if the allocator does not
 * report them.
 */
VALUE native_collectable_bytes(VALUE self) {
    uint64_t bytes;

    return memscope_lever_collectable_bytes(&bytes) ? ULL2NUM(bytes) : Qnil;
}

/* ---- tuning ----------------------------------------------------------------------------------------------------- */

/* Settings to leave as they are are unknown. */
struct tuning {
    int64_t dirty_ms, muzzy_ms, background_thread;
    struct memscope_decay_times *arenas; /* `count` entries, by index */
    unsigned count;
    struct memscope_decay_times later;
    struct memscope_tuning_figures figures;
    enum memscope_status background_status, set_background_status;
};

static void tune_decay(unsigned index, enum memscope_jemalloc_decay_kind kind, int64_t wanted, int64_t *old_ms,
                       int64_t *ms) {
    if (memscope_jemalloc_read_decay_ms(index, kind, ms) != MEMSCOPE_OK)
        *ms = MEMSCOPE_UNKNOWN_SIGNED;
    *old_ms = *ms;
    if (*ms == MEMSCOPE_UNKNOWN_SIGNED || wanted == MEMSCOPE_UNKNOWN_SIGNED)
        return;
    memscope_jemalloc_set_decay_ms(index, kind, wanted);
    memscope_jemalloc_read_decay_ms(index, kind, ms);
}

static struct memscope_decay_times tune_arena(const struct tuning *tuning, unsigned index) {
    struct memscope_decay_times times = {.index = index == MEMSCOPE_LATER_ARENAS ? MEMSCOPE_UNKNOWN : index};

    tune_decay(index, MEMSCOPE_JEMALLOC_DIRTY, tuning->dirty_ms, &times.old_dirty_decay_ms, &times.dirty_decay_ms);
    tune_decay(index, MEMSCOPE_JEMALLOC_MUZZY, tuning->muzzy_ms, &times.old_muzzy_decay_ms, &times.muzzy_decay_ms);
    return times;
}

static void tune_background_thread(struct tuning *tuning) {
    bool on;

    tuning->background_status = memscope_jemalloc_read_background_thread(&on);
    if (tuning->background_status == MEMSCOPE_OK)
        tuning->figures.old_background_thread = on;
    if (tuning->background_thread != MEMSCOPE_UNKNOWN_SIGNED)
        tuning->set_background_status = memscope_jemalloc_set_background_thread(tuning->background_thread != 0);
    if (memscope_jemalloc_read_background_thread(&on) == MEMSCOPE_OK)
        tuning->figures.background_thread = on;
}

static void tune(void *argument) {
    struct tuning *tuning = argument;

    tune_background_thread(tuning);
    tuning->later = tune_arena(tuning, MEMSCOPE_LATER_ARENAS);
    for (unsigned index = 0; index < tuning->count; index++)
        tuning->arenas[index] = tune_arena(tuning, index);
}

static VALUE arenas_to_array(const struct tuning *tuning, VALUE reasons) {
    VALUE list = rb_ary_new();
    unsigned unused = 0;

    for (unsigned index = 0; index < tuning->count; index++) {
        const struct memscope_decay_times *times = &tuning->arenas[index];

        if (times->dirty_decay_ms != MEMSCOPE_UNKNOWN_SIGNED || times->muzzy_decay_ms != MEMSCOPE_UNKNOWN_SIGNED)
            rb_ary_push(list, memscope_decay_times_hash(times));
        else
            unused++;
    }
    if (unused > 0)
        memscope_set_reason_of(reasons, "arenas", "arenas_unused", UINT2NUM(unused), UINT2NUM(tuning->count));
    return list;
}

static VALUE tuning_to_hash(struct tuning *tuning, uint64_t start_ns, uint64_t without_gvl_ns) {
    enum memscope_allocator_name allocator = memscope_allocator_current()->name;
    bool tunable = allocator == MEMSCOPE_ALLOCATOR_JEMALLOC;
    VALUE body, reasons = rb_hash_new();

    tuning->figures.allocator = memscope_text_of(memscope_allocator_name_text(allocator));
    body = memscope_tuning_figures_hash(&tuning->figures);
    memscope_hash_add(body, {"arenas", arenas_to_array(tuning, reasons)},
                      {"new_arena_defaults", tunable ? memscope_decay_times_hash(&tuning->later) : Qnil});
    if (tuning->background_status == MEMSCOPE_NOT_FOUND)
        memscope_set_reason(reasons, "background_thread", "background_threads_absent");
    else if (tuning->set_background_status == MEMSCOPE_IO)
        memscope_set_reason(reasons, "background_thread", "background_threads_failed");
    if (!tunable)
        memscope_set_reason(reasons, "arenas", "tuning_unsupported");
    return memscope_finish(body, reasons, "T1", start_ns, without_gvl_ns, 0);
}

/*
 * Native.tune(dirty_decay_ms, muzzy_decay_ms, background_thread) -> the body of a Tuning. nil leaves a setting as it
 * is. For jemalloc only.
 */
VALUE native_tune(VALUE self, VALUE dirty_ms, VALUE muzzy_ms, VALUE background_thread) {
    uint64_t start = memscope_now_ns(), without_gvl_ns;
    struct tuning tuning = {
        .dirty_ms = NIL_P(dirty_ms) ? MEMSCOPE_UNKNOWN_SIGNED : NUM2LL(dirty_ms),
        .muzzy_ms = NIL_P(muzzy_ms) ? MEMSCOPE_UNKNOWN_SIGNED : NUM2LL(muzzy_ms),
        .background_thread = NIL_P(background_thread) ? MEMSCOPE_UNKNOWN_SIGNED : RTEST(background_thread),
        .figures = memscope_tuning_figures_unknown,
    };
    VALUE room, body;

    tuning.count = memscope_jemalloc_arena_count();
    tuning.arenas = ALLOCV_N(struct memscope_decay_times, room, tuning.count);
    without_gvl_ns = memscope_without_gvl(tune, &tuning);
    body = tuning_to_hash(&tuning, start, without_gvl_ns);
    ALLOCV_END(room);
    return body;
}

void Init_memscope_levers(void) {
    rb_define_const(rb_mMemscopeNative, "MAX_DECAY_MS", LL2NUM(MEMSCOPE_JEMALLOC_MAX_DECAY_MS));
}
