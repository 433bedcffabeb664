#include "values.h"

#include "ruby/sample/object_sampler.h"

#include "base/scratch.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"
#include "ruby/sample/event_hooks.h"
#include "ruby/sample/frame_texts.h"
#include "ruby/sample/object_records.h"
#include "ruby/sample/tags.h"

#include <math.h>
#include <ruby/vm.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A sample is charged at most this much: any excess is the time of other threads or processes. */
#define MAX_SAMPLE_COST_NS 20000

enum phase { RESTING, WATCHING, WATCHED };

static struct sampler {
    bool running;
    bool working;       /* within the postponed job */
    bool skipping;      /* the window has not begun yet: memscope_plan_skip */
    bool unpaired;      /* a fork since the last window: the child's CPU clock began at 0 */
    _Atomic(bool) due;  /* the next call of `hit` takes a sample */
    _Atomic(bool) lost; /* another Ractor has been alive unnoticed: hooks do nothing, and samples must not be read */
    enum phase phase;
    pid_t pid;
    uint32_t marks;              /* major GCs that have ended their mark phase */
    _Atomic(int64_t) left;       /* allocations up to the next call of `hit` */
    _Atomic(uint64_t) step;      /* the value that `left` started from */
    _Atomic(uint64_t) remaining; /* allocations left in the window, as of the last call of `hit` */
    uint64_t watched;            /* allocations of this window, the skipped ones included */
    double stands_for;
    double stands_before;                       /* stands_for of the window before */
    struct memscope_sampling_plan plan, before; /* before: as it was when the window began */
    struct memscope_generations generations;

    /* Allocation counts. started_at: total_allocated_objects at the start, from which the other counts start. */
    uint64_t started_at;
    uint64_t forked_at; /* 0 in the process that started the profile */
    uint64_t passed_at; /* at the last GC event at which no window could begin: the reach counts from it */

    /* Costs since the last window and, in *_before, of windows that have ended. */
    uint64_t cpu_started_at, cpu_at; /* CPU time at the start, and when the last window ended */
    uint64_t watched_ns;             /* as in struct memscope_window, or own_time() at an open window's start */
    uint64_t spent_ns, gc_ns;
    uint64_t watched_before, spent_before, gc_before;
    double watching_before; /* nanoseconds, for watched_before */

    /* Counts of GCs: all and major ones at the last end of a mark phase, and all at the last GC event. */
    uint64_t collections, majors, entered;
    uint64_t rearmed, missed;
} sampler;

static struct memscope_object_samples *samples;

/* Counts by tag. `marks`: at the last two major GCs, in turn. */
static struct tag_tables {
    struct memscope_tag_allocations allocations;
    struct memscope_tag_mark marks[2], start;
} * tags;

_Static_assert(sizeof *samples + MEMSCOPE_OBJECT_RECORDS_LIMIT + MEMSCOPE_FRAME_TEXTS_LIMIT <= 8 << 20,
               "the tables of samples: 8 MB");
_Static_assert(sizeof *tags <= 256 << 10, "and those by tag: 256 KB");

static void on_allocation(VALUE data, rb_trace_arg_t *trace);
static void on_gc(VALUE data, rb_trace_arg_t *trace);
static void check_collections(void);
static void work(void *unused);

static memscope_job job;

/* ---- counts and times -------------------------------------------------------------------------------------------- */

/* Since the start. */
static uint64_t allocations(void) {
    return memscope_objects_allocated() - sampler.started_at;
}

static uint64_t cpu_of_process(void) {
    return memscope_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* The process's CPU time since `then`. In a forked child, whose clock restarts at 0, it is 0 until notice_fork. */
static uint64_t cpu_since(uint64_t then) {
    uint64_t now = cpu_of_process();

    return now > then ? now - then : 0;
}

/* ---- hooks ------------------------------------------------------------------------------------------------------- */

static void watch_gc(void) {
    memscope_event_hook_add(on_gc, RUBY_INTERNAL_EVENT_GC_ENTER | RUBY_INTERNAL_EVENT_GC_END_MARK);
}

/* ---- a window ---------------------------------------------------------------------------------------------------- */

/*
 * From 4.0 on, other Ractors may count in parallel, and an allocation is occasionally missed. An atomic decrement would
 * cost more.
 */
#define LOAD(field) atomic_load_explicit(&sampler.field, memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&sampler.field, value, memory_order_relaxed)

/* Returns true if no other Ractor is, or has been, alive unnoticed. Also for hooks, jobs and GCs, in any Ractor. */
static bool is_alone(void) {
    if (!memscope_in_main_ractor() || memscope_ractors_alive() || !memscope_event_hook_is_there(on_gc))
        STORE(lost, true);
    return !LOAD(lost);
}

/* Subtracts the last step from the window, and returns the rest. */
static uint64_t step_on(void) {
    uint64_t remaining = LOAD(remaining), step = LOAD(step);

    remaining = remaining > step ? remaining - step : 0;
    STORE(remaining, remaining);
    return remaining;
}

/* Sets the next step: to a sample, or to the window's end. At the end, every allocation calls `hit`. */
static void count_down(uint64_t interval, uint64_t remaining) {
    bool due = interval <= remaining;
    uint64_t step = due ? interval : remaining;

    STORE(due, due);
    STORE(step, step);
    STORE(left, step > 0 ? (int64_t)step : 1);
}

/* Makes room for as many samples as can be recorded before they are settled. */
static void make_room(void) {
    uint64_t begun = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID);

    memscope_object_samples_make_room(samples, MEMSCOPE_OBJECT_RECORDS, &sampler.plan);
    sampler.spent_ns += memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
}

/* The skip is over: from now on, allocations by tag are counted for this window. */
static void end_skip(void) {
    memscope_tag_allocations_next_window(&tags->allocations, sampler.stands_before);
    sampler.skipping = false;
}

/* The process's CPU time without that of samples since the last window. */
static uint64_t own_time(void) {
    return cpu_of_process() - sampler.spent_ns;
}

static void begin_window(uint64_t now, uint64_t reach) {
    uint64_t skip;

    make_room();
    sampler.before = sampler.plan;
    sampler.stands_before = sampler.stands_for;
    skip = memscope_plan_skip(&sampler.plan, reach);
    sampler.watched = skip + MEMSCOPE_WINDOW_ALLOCATIONS;
    STORE(remaining, sampler.watched);
    sampler.stands_for = memscope_plan_begin_window(&sampler.plan, now, skip, reach);
    sampler.skipping = skip > 0;
    if (!sampler.skipping)
        end_skip();
    count_down(skip > 0 ? skip : memscope_plan_interval(&sampler.plan), sampler.watched);
    sampler.phase = WATCHING;
    sampler.watched_ns = own_time();
    memscope_event_hook_add(on_allocation, RUBY_INTERNAL_EVENT_NEWOBJ);
}

/*
 * Within the hook. From 4.0 on, a hook that removes itself waits for all Ractors to stop, which deadlocks if another
 * Ractor begins a GC at that moment. So from 4.0 on, the postponed job removes the hook.
 */
static void end_window(void) {
    uint64_t now = own_time();

    if (!MEMSCOPE_HOOKS_SEE_ALL_RACTORS)
        memscope_event_hook_remove(on_allocation);
    STORE(left, INT64_MAX);
    sampler.phase = WATCHED;
    sampler.watched_ns = now > sampler.watched_ns ? now - sampler.watched_ns : 0;
    memscope_job_request(job);
}

/* Within the hook: the object is not complete, and nothing may be allocated. */
static void take_sample(VALUE object) {
    uint64_t begun = memscope_now_ns(), spent;
    uint16_t record = memscope_object_record();

    if (record == 0) {
        samples->taken++;
        samples->dropped++;
        return;
    }
    memscope_object_samples_add(samples, (struct memscope_object_sample){
                                             .address = object,
                                             .weight = (float)(sampler.plan.interval * sampler.stands_for),
                                             .stands_for = (float)sampler.stands_for,
                                             .epoch = sampler.generations.epoch,
                                             .window = (uint32_t)sampler.plan.windows,
                                             .pending = record,
                                             .tag = (uint16_t)memscope_current_tag(),
                                             .slot_bytes = (uint16_t)MEMSCOPE_SLOT_BYTES(object),
                                         });
    spent = memscope_now_ns() - begun;
    sampler.spent_ns += spent < MAX_SAMPLE_COST_NS ? spent : MAX_SAMPLE_COST_NS;
}

static __attribute__((noinline)) void hit(rb_trace_arg_t *trace) {
    uint64_t remaining;

    if (!is_alone())
        STORE(left, INT64_MAX);
    if (sampler.phase != WATCHING || LOAD(lost))
        return;
    remaining = step_on();
    if (sampler.skipping)
        end_skip();
    else if (LOAD(due))
        take_sample(rb_tracearg_object(trace));
    if (remaining == 0)
        end_window();
    else
        count_down(memscope_plan_interval(&sampler.plan), remaining);
}

static void on_allocation(VALUE data, rb_trace_arg_t *trace) {
    int64_t left = LOAD(left) - 1;

    STORE(left, left);
    if (sampler.phase == WATCHING && !sampler.skipping) /* from 4.0 on, the hook outlasts the window */
        tags->allocations.window[memscope_current_tag()]++;
    if (left <= 0)
        hit(trace);
}

/* Settles the samples taken so far. A window that is open stays open. */
static void settle_samples(void) {
    uint64_t begun = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID);

    if (!memscope_object_records_any())
        return;
    memscope_object_records_find_texts(samples);
    check_collections(); /* before 3.4, another tool's hook for allocations may have run a GC unseen */
    memscope_object_records_settle(samples);
    sampler.spent_ns += memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
}

/* ---- garbage collections ----------------------------------------------------------------------------------------- */

static enum memscope_object_age age_of(uintptr_t address) {
    if (!memscope_object_is_marked((VALUE)address))
        return MEMSCOPE_OBJECT_DEAD;
    return MEMSCOPE_IS_OLD((VALUE)address) ? MEMSCOPE_OBJECT_OLD : MEMSCOPE_OBJECT_YOUNG;
}

/*
 * Accounts for GCs that ended their mark phase unseen: Ruby calls no hook for a GC that runs within another NEWOBJ
 * hook, and before 4.0, a Ractor that ends switches all hooks off (Bug #19112). It is unknown which objects these GCs
 * freed, so the samples of all objects that they may have freed are dropped. `majors`: how many of these GCs were
 * major.
 */
static void miss(uint64_t missed, uint64_t majors) {
    sampler.missed += missed;
    memscope_object_samples_forget(samples, majors == 0);
    memscope_frame_texts_forget();
}

static void count_runs(struct memscope_tag_mark *mark) {
    const struct memscope_tag_runs *runs = memscope_tag_runs();

    for (uint32_t tag = 0; tag < MEMSCOPE_TAGS; tag++)
        mark->half_runs[tag] = runs ? runs[tag].begun + runs[tag].ended : 0;
}

/* The plan as of now, with *last as in memscope_plan_at. Works inside a GC too. */
static struct memscope_sampling_plan plan_now(double *last) {
    uint64_t remaining = sampler.phase == WATCHING ? LOAD(remaining) : 0;
    bool skipping = remaining >= MEMSCOPE_WINDOW_ALLOCATIONS && sampler.before.windows > 0; /* nothing is sampled yet */

    return memscope_plan_at(skipping ? &sampler.before : &sampler.plan, allocations(), skipping ? 0 : remaining, last);
}

static void mark_major(void) {
    struct memscope_tag_mark *mark = &tags->marks[sampler.marks++ % 2];

    mark->plan = plan_now(&mark->last);
    mark->epoch = sampler.generations.epoch;
    count_runs(mark);
}

/* At the end of a mark phase: the mark bits are final, and nothing has been swept yet. */
static void end_marking(void) {
    uint64_t begun = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID), spent;
    uint64_t count = rb_gc_count(), majors = memscope_major_collections();
    bool minor = memscope_collection_is_minor();

    if (count > sampler.collections + 1)
        miss(count - sampler.collections - 1, majors - sampler.majors - !minor);
    sampler.collections = count;
    sampler.majors = majors;
    memscope_object_samples_sweep(samples, minor, age_of);
    memscope_frame_texts_sweep(minor);
    memscope_generations_marked(&sampler.generations, minor);
    if (!minor)
        mark_major();
    spent = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
    sampler.spent_ns += spent;
    sampler.gc_ns += spent;
}

static void request_window(void) {
    uint64_t now = allocations();

    if (sampler.phase == RESTING && now >= sampler.plan.due)
        memscope_job_request(job);
    else
        sampler.passed_at = now;
}

static void on_gc(VALUE data, rb_trace_arg_t *trace) {
    if (!sampler.running)
        return;
    if (!is_alone()) {
        memscope_event_hook_remove(on_allocation);
        memscope_event_hook_remove(on_gc);
        return;
    }
    if (rb_tracearg_event_flag(trace) == RUBY_INTERNAL_EVENT_GC_END_MARK)
        end_marking();
    sampler.entered = rb_gc_count();
    if (sampler.phase == WATCHED)
        memscope_job_request(job);
    request_window();
}

/*
 * If GCs have ended their mark phase unseen, drops the samples of objects that those GCs may have freed, and returns
 * true. `ended`: the number of GCs that have ended their mark phase so far.
 */
static bool notice_unseen(uint64_t ended) {
    uint64_t majors = memscope_major_collections();

    if (ended <= sampler.collections)
        return false;
    miss(ended - sampler.collections, majors - sampler.majors);
    sampler.collections = ended;
    sampler.majors = majors;
    return true;
}

/* Calls malloc, which may run another GC unseen: hence the check. */
static void add_again(void) {
    memscope_event_hook_remove(on_gc);
    watch_gc();
    notice_unseen(memscope_collections_ended());
    sampler.entered = rb_gc_count();
    sampler.rearmed++;
}

/* Called outside of a GC. If no hook was called for a GC, adds the hook again. */
static void check_collections(void) {
    if (!notice_unseen(memscope_collections_ended()))
        return;
    add_again();
}

/* ---- the guard, an object for the garbage collector ------------------------------------------------------------ */

/*
 * Runs within each mark phase, in the Ractor that began the GC. Before 4.0, hooks run in the main Ractor only. If no
 * hook was called for this GC, Ruby has switched the hooks off, and a job adds them again. While a job is working, no
 * job is requested: no hook sees the GCs of a job, so the job would be requested again forever.
 */
static void mark(void *unused) {
    if (!sampler.running)
        return;
    memscope_object_records_mark();
    if (is_alone() && !sampler.working && rb_gc_count() > sampler.entered + 1)
        memscope_job_request(job);
}

static uintptr_t moved(uintptr_t address) {
    return rb_gc_location((VALUE)address);
}

/*
 * Updates addresses. Frames recorded after the mark phase are not pinned, so they may have moved too. Samples of
 * objects that an unseen GC may have freed are dropped first: their pages may be gone, and rb_gc_location would read
 * them. rb_gc_stat does not work here, since the keys of Ruby's symbol table have moved. A compacting GC is major, so
 * one of the unseen GCs was.
 */
static void compact(void *unused) {
    uint64_t count = rb_gc_count();

    if (!sampler.running)
        return;
    memscope_object_records_move();
    if (!is_alone())
        return;
    if (count > sampler.collections) {
        miss(count - sampler.collections, 1);
        sampler.collections = count;
    }
    memscope_object_samples_move(samples, moved);
    memscope_frame_texts_move();
}

static void end_ruby(void *unused) {
    sampler.running = false;
    sampler.phase = RESTING;
}

/*
 * The guard is not write-barrier protected, so that each minor GC marks it, since recording runs no write barrier. It
 * has no dsize function: its tables are mapped, not allocated by malloc.
 */
static const rb_data_type_t guard_type = {
    .wrap_struct_name = "Memscope::Native object samples",
    .function = {.dmark = mark, .dfree = end_ruby, .dcompact = compact},
};

static void at_vm_exit(ruby_vm_t *unused) {
    end_ruby(NULL);
}

/* ---- the postponed job ------------------------------------------------------------------------------------------- */

static void account_window(void) {
    memscope_plan_end_window(&sampler.plan, (struct memscope_window){
                                                .ends_at = allocations(),
                                                .watched = sampler.watched,
                                                .watched_ns = sampler.unpaired ? 0 : sampler.watched_ns,
                                                .spent_ns = sampler.spent_ns,
                                                .cpu_ns = cpu_since(sampler.cpu_at),
                                            });
    sampler.cpu_at = cpu_of_process();
    sampler.unpaired = false;
    sampler.watched_before += sampler.watched;
    sampler.watching_before += sampler.plan.watching_ns * (double)sampler.watched;
    sampler.spent_before += sampler.spent_ns;
    sampler.gc_before += sampler.gc_ns;
    sampler.spent_ns = sampler.gc_ns = sampler.watched = 0;
    sampler.phase = RESTING;
}

static uint64_t seed(void) {
    return memscope_now_ns() ^ (uint64_t)getpid() << 32;
}

/* Drops the open window's counts by tag. During its skip, the counts are still the previous window's, and stay. */
static void cancel_counts(void) {
    if (!sampler.skipping)
        memset(tags->allocations.window, 0, sizeof tags->allocations.window);
    sampler.skipping = false;
    sampler.stands_for = sampler.stands_before;
}

/* Undoes the open window: the previous window stands for its allocations too. */
static void cancel_window(void) {
    memscope_event_hook_remove(on_allocation);
    sampler.watched -= LOAD(remaining);
    memscope_object_samples_forget_window(samples, (uint32_t)sampler.plan.windows);
    memscope_object_records_clear();
    cancel_counts();
    account_window();
    sampler.plan = sampler.before;
}

/*
 * Returns true if an allocation calls the hook. Call it in a window, outside of hooks. `left` alone does not say so: if
 * this allocation is sampled, the next sample may be as near as this one was.
 */
static bool is_watching(void) {
    int64_t before = LOAD(left);
    uint64_t remained = LOAD(remaining);

    rb_obj_alloc(rb_cObject);
    return LOAD(left) != before || LOAD(remaining) != remained;
}

/* If Ruby has switched the hooks off, it is unknown since when the open window does not watch allocations. */
static void check_window(void) {
    if (!MEMSCOPE_RACTORS_SWITCH_HOOKS_OFF || sampler.phase != WATCHING || is_watching())
        return;
    cancel_window();
    add_again();
}

static uint64_t watched_of_window(void) {
    return sampler.phase == RESTING ? 0 : sampler.watched - LOAD(remaining);
}

/*
 * A forked child draws other random numbers than its parent. Its CPU clock began at 0, so it counts only its own costs.
 */
static void notice_fork(void) {
    if (sampler.pid == getpid())
        return;
    sampler.pid = getpid();
    sampler.cpu_at = sampler.cpu_started_at = 0;
    sampler.spent_ns = sampler.gc_ns = sampler.spent_before = sampler.gc_before = 0;
    sampler.watched_before = 0 - watched_of_window(); /* plus watched_of_window: watched by the child */
    sampler.watching_before = -sampler.plan.watching_ns * (double)watched_of_window();
    sampler.unpaired = true;
    sampler.forked_at = allocations();
    memscope_plan_reseed(&sampler.plan, seed());
}

/* Returns true if a window begins. `reach` is 0 at the end of a window, which another may follow immediately. */
static bool begin_window_if_due(uint64_t now, uint64_t reach) {
    bool due = now >= sampler.plan.due && memscope_plan_affords(&sampler.plan, cpu_since(sampler.cpu_at), reach);

    if (due)
        begin_window(now, reach);
    return due;
}

/* Leaves its own allocations out of the count: no window can watch them, so no sample may stand for them. */
static void settle_between_windows(void) {
    uint64_t before = allocations();

    settle_samples();
    sampler.started_at += allocations() - before;
}

/*
 * The postponed job: with the GVL, outside of hooks, in any thread. Calls no Ruby method: a method that checks
 * interrupts would raise an exception of Thread#raise or Thread#kill here, and Ruby drops exceptions of postponed jobs.
 */
static void work(void *unused) {
    if (!sampler.running || !is_alone())
        return;
    sampler.working = true;
    notice_fork();
    check_window();
    check_collections();
    if (sampler.phase == WATCHED) {
        if (MEMSCOPE_HOOKS_SEE_ALL_RACTORS)
            memscope_event_hook_remove(on_allocation);
        settle_between_windows();
        account_window();
        begin_window_if_due(allocations(), 0);
    } else if (sampler.phase == RESTING) {
        uint64_t now = allocations();

        if (!begin_window_if_due(now, now - sampler.passed_at))
            sampler.passed_at = now;
    }
    sampler.working = false;
}

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

#define TRIAL 2000
#define COLLECTIONS_OF_TRIAL 4 /* more run with GC.stress, where each allocation takes milliseconds */

/* Nanoseconds. */
static double time_of_allocation(void) {
    uint64_t begun = memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    size_t collections = rb_gc_count();
    int count;

    for (count = 0; count < TRIAL && rb_gc_count() - collections < COLLECTIONS_OF_TRIAL; count++)
        rb_obj_alloc(rb_cObject);
    return (double)(memscope_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun) / count;
}

/*
 * The extra cost of a watched allocation, in nanoseconds: limited to between a tenth and four times the cost of an
 * unwatched one, and at least 5, since the clock may be coarse.
 */
static double watching_ns(void) {
    double plain = INFINITY, watched = INFINITY;

    STORE(left, INT64_MAX);
    sampler.phase = WATCHING; /* so that the hook works as in a window */
    for (int round = 0; round < 3; round++) {
        plain = fmin(plain, time_of_allocation());
        memscope_event_hook_add(on_allocation, RUBY_INTERNAL_EVENT_NEWOBJ);
        watched = fmin(watched, time_of_allocation());
        memscope_event_hook_remove(on_allocation);
    }
    return fmax(fmin(fmax(watched - plain, plain / 10), 4 * plain), 5);
}

/* Does its work once per process. Returns the reason why it cannot, or NULL. */
static const char *prepare(void) {
    static bool prepared;

    if (prepared)
        return NULL;
    if (!MEMSCOPE_KNOWS_MARKED)
        return "marks_unknown";
    if (!samples)
        samples = memscope_object_samples_map();
    if (!tags)
        tags = memscope_lasting_map(sizeof *tags);
    if (!samples || !tags || !memscope_object_records_open() || !memscope_frame_texts_open())
        return memscope_status_id(MEMSCOPE_NO_MEMORY);
    job = memscope_job_prepare(work);
    if (job == POSTPONED_JOB_HANDLE_INVALID)
        return "jobs_taken";
    memscope_collections_prepare();
    rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &guard_type, &sampler));
    ruby_vm_at_exit(at_vm_exit);
    prepared = true;
    return NULL;
}

const char *memscope_object_sampler_start(double budget) {
    const char *obstacle;
    double watching;

    if (sampler.running)
        return "running";
    if ((obstacle = memscope_event_hooks_obstacle()) != NULL || (obstacle = prepare()) != NULL)
        return obstacle;
    if (MEMSCOPE_RACTORS_SWITCH_HOOKS_OFF && memscope_ractors_were_created())
        rb_gc(); /* frees those that have ended, which would switch off the hooks */
    watching = watching_ns();
    memscope_object_samples_clear(samples);
    memscope_frame_texts_begin(&samples->texts);
    memscope_object_records_clear();
    memscope_lasting_empty(tags, sizeof *tags);
    count_runs(&tags->start);
    sampler = (struct sampler){.running = true, .pid = getpid()};
    memscope_plan_begin(&sampler.plan, budget, watching, cpu_of_process(), seed());
    sampler.entered = rb_gc_count();
    sampler.collections = memscope_collections_ended();
    /* Here, only a major GC can be in its (incremental) mark phase, and major_gc_count includes it. */
    sampler.majors = memscope_major_collections() - (sampler.entered - sampler.collections);
    sampler.cpu_started_at = sampler.cpu_at = cpu_of_process();
    sampler.started_at = allocations();
    watch_gc();
    work(NULL);
    return NULL;
}

void memscope_object_sampler_stop(void) {
    if (sampler.phase != RESTING)
        memscope_event_hook_remove(on_allocation);
    memscope_event_hook_remove(on_gc);
    sampler.running = false;
}

bool memscope_object_sampler_runs(void) {
    return sampler.running;
}

bool memscope_object_sampler_lost(void) {
    return LOAD(lost);
}

void memscope_object_sampler_settle(void) {
    if (!sampler.running)
        return;
    if (!is_alone()) {
        memscope_object_sampler_stop();
        return;
    }
    notice_fork();
    check_window();
    check_collections();
    settle_samples();
}

/* ---- reading the samples ----------------------------------------------------------------------------------------- */

struct memscope_object_samples *memscope_object_sampler_samples(void) {
    return samples;
}

uint32_t memscope_object_sampler_next_generation(void) {
    return memscope_generation_begin(&sampler.generations);
}

static int by_address(const void *left, const void *right) {
    const struct memscope_sampled_object *one = left, *other = right;

    return one->address < other->address ? -1 : one->address > other->address;
}

size_t memscope_object_sampler_alive(struct memscope_sampled_object *objects, size_t count) {
    VALUE *alive = (VALUE *)(void *)objects;
    size_t found = 0, kept = 0;

    if (!sampler.running || !is_alone())
        return 0;
    check_collections();
    qsort(objects, count, sizeof *objects, by_address);
    for (uint32_t index = 0; index < samples->count; index++) {
        const struct memscope_object_sample *sample = &samples->list[index];
        struct memscope_sampled_object key = {.address = sample->address}, *object;

        object = bsearch(&key, objects, count, sizeof *objects, by_address);
        if (object != NULL && object->window == sample->window && object->epoch == sample->epoch) {
            object->window = 0;
            found++;
        }
    }
    for (size_t index = 0; index < count && kept < found; index++)
        if (objects[index].window == 0)
            alive[kept++] = (VALUE)objects[index].address;
    return kept;
}

struct memscope_object_sampler_state memscope_object_sampler_state(void) {
    struct memscope_object_sampler_state state = {.generations = sampler.generations};
    double watching = sampler.watching_before + sampler.plan.watching_ns * (double)watched_of_window();
    double spent = (double)(sampler.spent_before + sampler.spent_ns) + watching;
    uint64_t cpu_ns = cpu_since(sampler.cpu_started_at), made = allocations() - sampler.forked_at;

    state.plan = plan_now(&state.last);
    state.overhead = (struct memscope_sampling_overhead){
        .samples_taken = samples->taken,
        .nanoseconds = spent,
        .table_bytes = memscope_lasting_resident_bytes(samples, sizeof *samples) + memscope_object_records_bytes() +
                       memscope_frame_texts_bytes() + memscope_lasting_resident_bytes(tags, sizeof *tags),
        .dropped_samples = samples->dropped,
        .inflated_bytes = MEMSCOPE_UNKNOWN,
        .patched_imports = MEMSCOPE_UNKNOWN,
        .patched_objects = MEMSCOPE_UNKNOWN,
        .budget = state.plan.budget,
        .cpu_share = cpu_ns > 0 ? spent / (double)cpu_ns : NAN,
        .gc_nanoseconds = sampler.gc_before + sampler.gc_ns,
        .watched_share = made > 0 ? (double)(sampler.watched_before + watched_of_window()) / (double)made : NAN,
        .thinned = samples->thinned,
        .rearmed = sampler.rearmed,
        .missed_collections = sampler.missed,
    };
    return state;
}

struct memscope_object_tags memscope_object_sampler_tags(void) {
    return (struct memscope_object_tags){
        .allocations = &tags->allocations,
        .stands_for = sampler.skipping ? sampler.stands_before : sampler.stands_for,
        .start = &tags->start,
        .judged = sampler.marks < 2 ? NULL : &tags->marks[sampler.marks % 2],
    };
}
