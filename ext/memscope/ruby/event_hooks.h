/*
 * Hooks for Ruby's internal events. Each gets the event itself, and runs inside a GC too. With the GVL.
 */
#ifndef MEMSCOPE_EVENT_HOOKS_H
#define MEMSCOPE_EVENT_HOOKS_H

#include <ruby.h>
#include <ruby/debug.h>

typedef void (*memscope_event_hook)(VALUE data, rb_trace_arg_t *event);

static inline void memscope_event_hook_add(memscope_event_hook hook, rb_event_flag_t events) {
    rb_add_event_hook2((rb_event_hook_func_t)(void (*)(void))hook, events, Qnil,
                       (rb_event_hook_flag_t)(RUBY_EVENT_HOOK_FLAG_SAFE | RUBY_EVENT_HOOK_FLAG_RAW_ARG));
}

static inline void memscope_event_hook_remove(memscope_event_hook hook) {
    rb_remove_event_hook((rb_event_hook_func_t)(void (*)(void))hook);
}

#endif
