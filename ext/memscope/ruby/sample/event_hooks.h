/*
 * Hooks for Ruby's internal events. Each gets the event itself, and runs inside a GC too. With the GVL, in the main
 * Ractor.
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

#endif
