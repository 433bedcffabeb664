/*
 * Hooks for Ruby's internal events, what they ask of the garbage collector, and the jobs that they request. Each hook
 * gets the event itself, and runs inside a GC too. With the GVL, in the main Ractor.
 *
 * No hook is added while other Ractors are alive, nor removed from 4.0 on. From then on, all Ractors share the list of
 * hooks, and a hook that is removed is freed while another Ractor may be calling it (vm_trace.c, clean_hooks): malloc's
 * heap is corrupted. Before 3.1.4, a Ractor that begins while there is a hook crashes. So hooks are to be removed in a
 * function of memscope_before_ractors.
 */
#ifndef MEMSCOPE_EVENT_HOOKS_H
#define MEMSCOPE_EVENT_HOOKS_H

#include <ruby.h>
#include <ruby/debug.h>
#include <stdbool.h>

typedef void (*memscope_event_hook)(VALUE data, rb_trace_arg_t *event);

/* Why no hook for allocations can be added now, as the id of a reason; NULL if one can. */
const char *memscope_event_hooks_obstacle(void);

/* Returns false, having added nothing, while another Ractor is alive or about to be. At most 8 different hooks. */
bool memscope_event_hook_add(memscope_event_hook hook, rb_event_flag_t events);

/*
 * From 4.0 on, the hook stays while other Ractors are alive: it must do nothing when it is called. It is then removed
 * when a hook is next added or removed with no other Ractor alive.
 */
void memscope_event_hook_remove(memscope_event_hook hook);

/*
 * Whether the hook was added and not removed. Before 3.1.4, hooks are also removed when a Ractor is allocated that
 * memscope_before_ractors has not noticed.
 */
bool memscope_event_hook_is_there(memscope_event_hook hook);

/* Interns what the next three functions and memscope_object_is_marked use: afterwards, they allocate nothing. */
void memscope_collections_prepare(void);

/* How many GCs have ended their mark phase. */
size_t memscope_collections_ended(void);

/* How many GCs were major, including one that is marking. Not during a compaction: it moves the keys of GC.stat. */
size_t memscope_major_collections(void);

/* Whether the GC that runs, or else the last one, is a minor one. Not during a compaction. */
bool memscope_collection_is_minor(void);

/*
 * A postponed job, which Ruby runs with the GVL, outside of hooks, in any thread and Ractor. To be prepared once:
 * POSTPONED_JOB_HANDLE_INVALID, requests of which do nothing, if all of Ruby's jobs are taken. A request is
 * async-signal-safe.
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

#endif
