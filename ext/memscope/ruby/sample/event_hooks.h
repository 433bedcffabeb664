/*
 * Hooks for Ruby's internal events, the collector's figures that they read, and the jobs that they request. Each hook
 * receives the event, and runs inside a GC too. With the GVL, in the main Ractor.
 *
 * No hook is added while other Ractors are alive, nor removed from 4.0 on. From then on, all Ractors share the list of
 * hooks, and a removed hook is freed while another Ractor may be calling it (vm_trace.c, clean_hooks), which corrupts
 * malloc's heap. Before 3.1.4, a Ractor that begins while there is a hook crashes. So remove hooks in a function of
 * memscope_before_ractors.
 */
#pragma once

#include <ruby.h>
#include <ruby/debug.h>
#include <stdbool.h>

typedef void (*memscope_event_hook)(VALUE data, rb_trace_arg_t *event);

/* The id of the reason why no hook for allocations can be added now, or NULL. */
const char *memscope_event_hooks_obstacle(void);

/* Adds nothing and returns false while another Ractor is alive or about to begin. At most 8 different hooks. */
bool memscope_event_hook_add(memscope_event_hook hook, rb_event_flag_t events);

/*
 * From 4.0 on, the hook stays while other Ractors are alive: it must do nothing when it is called. It is then removed
 * when a hook is next added or removed with no other Ractor alive.
 */
void memscope_event_hook_remove(memscope_event_hook hook);

/*
 * Returns true if the hook was added and not removed. Before 3.1.4, hooks are also removed when a Ractor is allocated
 * unnoticed by memscope_before_ractors.
 */
bool memscope_event_hook_is_there(memscope_event_hook hook);

/* Interns the IDs of the next three functions and memscope_object_is_marked, so that they allocate nothing. */
void memscope_collections_prepare(void);

/* The number of GCs that have ended their mark phase. */
size_t memscope_collections_ended(void);

/* The number of major GCs, including one in its mark phase. Not during a compaction: it moves the keys of GC.stat. */
size_t memscope_major_collections(void);

/* Returns true if the running GC, or else the last one, is minor. Not during a compaction. */
bool memscope_collection_is_minor(void);

/*
 * A postponed job, which Ruby runs with the GVL, outside of hooks, in any thread and Ractor. Prepare it once. If all of
 * Ruby's jobs are taken, it is POSTPONED_JOB_HANDLE_INVALID, and requests do nothing. A request is async-signal-safe.
 */
#ifdef HAVE_RB_POSTPONED_JOB_PREREGISTER
typedef rb_postponed_job_handle_t memscope_job;
#define memscope_job_prepare(work) rb_postponed_job_preregister(0, work, NULL)
#define memscope_job_request(job) ((job) == POSTPONED_JOB_HANDLE_INVALID ? (void)0 : rb_postponed_job_trigger(job))
#else
typedef rb_postponed_job_func_t memscope_job;
#define POSTPONED_JOB_HANDLE_INVALID NULL
#define memscope_job_prepare(work) (work)
#define memscope_job_request(job) rb_postponed_job_register_one(0, job, NULL)
#endif
