/*
 * Starts and stops a malloc profile: Native.start_profile, stop_profile and related methods, called by
 * Memscope::MallocProfile. Arguments have been checked in Ruby.
 */
#include "bindings/profile_binding.h"
#include "bindings/reasons.h"

#include "init.h"
#include "kernel/process.h"
#include "malloc/allocator.h"
#include "ruby/sample/stack_reader.h"
#include "ruby/sample/tags.h"
#include "sampling/import_counter.h"
#include "sampling/import_sampler.h"
#include "sampling/jemalloc_profile.h"
#include "sampling/native_frames.h"

#include <math.h>

struct memscope_profile memscope_profile;

/*
 * Native.prepare_profile(without_gvl) -> true, or false if there is no memory. `without_gvl`: whether the frames of
 * threads that wait without the GVL are read. Nothing is torn down.
 */
VALUE native_prepare_profile(VALUE self, VALUE without_gvl) {
    return memscope_stack_reader_prepare(RTEST(without_gvl)) ? Qtrue : Qfalse;
}

/*
 * Native.learn_vm_entry_points: call it from Ruby code at the bottom of a thread's stack. Only the first call learns,
 * since another thread may be unwinding its stack during later calls.
 */
VALUE native_learn_vm_entry_points(VALUE self) {
    static bool learnt;

    if (!learnt)
        memscope_native_frames_learn_callers(3);
    learnt = true;
    return Qnil;
}

/* Native.jemalloc_profiling -> :on, :off, :not_built, :no_hook or :other. */
VALUE native_jemalloc_profiling(VALUE self) {
    static const char *const names[] = {
        [MEMSCOPE_PROFILING_ON] = "on",
        [MEMSCOPE_PROFILING_OFF] = "off",
        [MEMSCOPE_PROFILING_NOT_BUILT] = "not_built",
        [MEMSCOPE_PROFILING_NO_HOOK] = "no_hook",
        [MEMSCOPE_PROFILING_OTHER] = "other",
    };

    return memscope_symbol(names[memscope_jemalloc_profiling()]);
}

static enum memscope_status start_sampler(enum memscope_profile_backend backend, unsigned rate_log) {
    return backend == MEMSCOPE_BACKEND_IMPORTS
               ? memscope_import_sampler_start(ldexp(1, (int)rate_log), memscope_read_stack)
               : memscope_jemalloc_profile_start(rate_log, memscope_read_stack);
}

struct memscope_memory memscope_memory_now(void) {
    struct memscope_statm statm;
    struct memscope_memory now;

    now.rss = memscope_statm_read(&statm) == MEMSCOPE_OK ? statm.resident_bytes : MEMSCOPE_UNKNOWN;
    if (!memscope_allocator_live_bytes(&now.live_bytes))
        now.live_bytes = MEMSCOPE_UNKNOWN;
    return now;
}

/*
 * Native.start_profile(:jemalloc | :imports, log2 of the rate) -> Integer, the session number of the started profile
 * (see profile_session), :running if a profile is running already, or else a Symbol for the reason why it could not
 * start. The previous profile stays readable until the new one is ready to start.
 */
VALUE native_start_profile(VALUE self, VALUE backend, VALUE rate_log) {
    struct memscope_profile next = {.backend = backend == memscope_symbol("imports") ? MEMSCOPE_BACKEND_IMPORTS
                                                                                     : MEMSCOPE_BACKEND_JEMALLOC,
                                    .rate_log = NUM2UINT(rate_log)};
    enum memscope_status status;

    if (memscope_profile.running)
        return memscope_symbol("running");
    if (next.backend == MEMSCOPE_BACKEND_IMPORTS && memscope_import_counter_runs())
        return memscope_reason("imports_measured");
    status = next.backend == MEMSCOPE_BACKEND_IMPORTS ? memscope_import_sampler_prepare()
                                                      : memscope_jemalloc_profile_prepare();
    if (status == MEMSCOPE_OK) {
        memscope_profile.backend = MEMSCOPE_BACKEND_NONE;
        memscope_stack_reader_begin();
        next.at_start = memscope_memory_now();
        status = start_sampler(next.backend, next.rate_log);
        if (status != MEMSCOPE_OK)
            memscope_stack_reader_end();
    }
    if (status == MEMSCOPE_NOT_FOUND && next.backend == MEMSCOPE_BACKEND_IMPORTS)
        return memscope_reason("imports_taken");
    if (status != MEMSCOPE_OK)
        return memscope_status_reason(status);
    memscope_tag_runs_begin_profile();
    next.running = true;
    next.started_ns = memscope_clock_ns(CLOCK_REALTIME);
    memscope_profile = next;
    return UINT2NUM(memscope_session());
}

/*
 * Native.stop_profile -> Integer, the session number of the stopped profile, which malloc_profile takes, or nil if none
 * was running. The profile's samples stay readable.
 */
VALUE native_stop_profile(VALUE self) {
    if (!memscope_profile.running)
        return Qnil;
    if (memscope_profile.backend == MEMSCOPE_BACKEND_IMPORTS)
        memscope_import_sampler_stop();
    else
        memscope_jemalloc_profile_stop();
    memscope_profile.at_end = memscope_memory_now();
    memscope_profile.running = false;
    memscope_stack_reader_end();
    return UINT2NUM(memscope_session());
}

/* Native.profile_runs? */
VALUE native_profile_runs(VALUE self) {
    return memscope_profile.running ? Qtrue : Qfalse;
}

/* Native.profile_session -> Integer, the session number of the profile that is running or can still be read, or 0. */
VALUE native_profile_session(VALUE self) {
    return UINT2NUM(memscope_profile.backend == MEMSCOPE_BACKEND_NONE ? 0 : memscope_session());
}

/* Native.next_generation -> the number of the generation that begins. */
VALUE native_next_generation(VALUE self) {
    return UINT2NUM(memscope_next_generation());
}
