/*
 * Ractors other than the main one. They run in parallel with it, without its GVL. All code of memscope that Ruby
 * methods call runs in the main Ractor, since the extension does not declare itself Ractor-safe.
 */
#pragma once

#include <ruby.h>
#include <stdbool.h>

/* Once per process, in the main Ractor. */
void memscope_ractors_learn(void);

/* Callable in hooks and postponed jobs, but not before memscope_ractors_learn. */
bool memscope_in_main_ractor(void);

/*
 * Returns true if Ractors besides the main one are alive, by Ruby's own count, read in its struct. Caller holds the GVL
 * of the main Ractor. If the count was not found, calls Ractor.count, and other threads may run before this returns,
 * unless nothing has been allocated since the last call.
 */
bool memscope_other_ractors(void);

/*
 * The same, but callable in hooks, postponed jobs and GCs too, once the other function has been called. If the count
 * was not found, returns true if Ractor.new was ever called while it was watched.
 */
bool memscope_ractors_alive(void);

/*
 * From now on, the functions of memscope_before_ractors are called when the main Ractor calls `method`, Ruby's own
 * Ractor.new: before the new Ractor exists. There is one hole: Ruby runs no TracePoint within the handler of another
 * TracePoint, so a Ractor that is created there is not noticed. Calls Ruby methods, and may raise.
 */
void memscope_ractors_watch(VALUE method);
bool memscope_ractors_are_watched(void);

/* Returns true if the main Ractor has created another one while Ractor.new was watched. */
bool memscope_ractors_were_created(void);

/* Returns true if Ractor.new is watched, and a thread of the main Ractor is within it. */
bool memscope_ractor_begins(void);

/* The function may allocate objects, and must not raise. It is called with the GVL, outside of hooks for events. */
void memscope_before_ractors(void (*function)(void));
