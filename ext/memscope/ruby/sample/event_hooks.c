#include "values.h"

#include "ruby/sample/event_hooks.h"

#include "ruby/ractors.h"
#include "ruby/ruby_private.h"

#include <ruby/ractor.h>

#define HOOKS 8

/* The place of a hook is free unless it was added to Ruby. */
static struct {
    memscope_event_hook hook;
    rb_event_flag_t events;
    bool added, wanted;
} hooks[HOOKS];

const char *memscope_event_hooks_obstacle(void) {
    if (memscope_other_ractors())
        return "ractors_unsampled";
    if (memscope_ractor_begins())
        return "ractor_begins";
    if (memscope_hooks_crash_new_ractors() && !memscope_ractors_are_watched())
        return "ractors_unwatched";
    return NULL;
}

/* The place of an added hook or, for NULL, a free place. HOOKS if there is none. */
static size_t place_of(memscope_event_hook hook) {
    size_t index = 0;

    while (index < HOOKS && (hook ? !hooks[index].added || hooks[index].hook != hook : hooks[index].added))
        index++;
    return index;
}

static void add(size_t place, memscope_event_hook hook, rb_event_flag_t events) {
    hooks[place].hook = hook;
    hooks[place].events = events;
    hooks[place].added = hooks[place].wanted = true;
    rb_add_event_hook2((rb_event_hook_func_t)(void (*)(void))hook, events, Qnil,
                       (rb_event_hook_flag_t)(RUBY_EVENT_HOOK_FLAG_SAFE | RUBY_EVENT_HOOK_FLAG_RAW_ARG));
}

/* From 4.0 on, all Ractors share one list of hooks, which is left alone while others are alive. */
static void remove_unwanted(void) {
    if (MEMSCOPE_HOOKS_SEE_ALL_RACTORS && memscope_ractors_alive())
        return;
    for (size_t index = 0; index < HOOKS; index++) {
        if (!hooks[index].added || hooks[index].wanted)
            continue;
        rb_remove_event_hook((rb_event_hook_func_t)(void (*)(void))hooks[index].hook);
        hooks[index].added = false;
    }
}

/*
 * On a Ruby where a hook crashes a new Ractor, removes all hooks when the Ractor's object is allocated, which precedes
 * the Ractor even if Ractor.new is not noticed.
 */
static void look_out(VALUE data, rb_trace_arg_t *event) {
    VALUE object = rb_tracearg_object(event), class = RBASIC_CLASS(object);

    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA || class == 0 || !RTEST(rb_class_inherited_p(class, rb_cRactor)))
        return;
    for (size_t index = 0; index < HOOKS; index++)
        hooks[index].wanted = false;
    remove_unwanted();
}

/* Adds look_out while there is another hook for allocations, and removes it afterwards. */
static void keep_look_out(void) {
    size_t place = place_of(look_out);
    bool wanted = false;

    if (!memscope_hooks_crash_new_ractors())
        return;
    for (size_t index = 0; index < HOOKS; index++)
        wanted |= index != place && hooks[index].added && hooks[index].wanted &&
                  (hooks[index].events & RUBY_INTERNAL_EVENT_NEWOBJ);
    if (place < HOOKS)
        hooks[place].wanted = wanted;
    else if (wanted && (place = place_of(NULL)) < HOOKS)
        add(place, look_out, RUBY_INTERNAL_EVENT_NEWOBJ);
}

bool memscope_event_hook_add(memscope_event_hook hook, rb_event_flag_t events) {
    size_t place = place_of(hook);

    if (memscope_ractors_alive() || memscope_ractor_begins())
        return false;
    if (place < HOOKS)
        return hooks[place].wanted = true;
    remove_unwanted();
    place = place_of(NULL);
    if (place < HOOKS)
        add(place, hook, events);
    keep_look_out();
    return place < HOOKS;
}

void memscope_event_hook_remove(memscope_event_hook hook) {
    size_t place = place_of(hook);

    if (place < HOOKS)
        hooks[place].wanted = false;
    keep_look_out();
    remove_unwanted();
}

bool memscope_event_hook_is_there(memscope_event_hook hook) {
    size_t place = place_of(hook);

    return place < HOOKS && hooks[place].wanted;
}

/* ---- garbage collections ----------------------------------------------------------------------------------------- */

static VALUE state, marking, major_by, major_count;

void memscope_collections_prepare(void) {
    state = memscope_symbol("state");
    marking = memscope_symbol("marking");
    major_by = memscope_symbol("major_by");
    major_count = memscope_symbol("major_gc_count");
    rb_gc_latest_gc_info(major_by); /* the first call, and that of the next two, interns further keys */
    rb_gc_stat(major_count);
    memscope_object_is_marked(rb_cObject);
}

size_t memscope_collections_ended(void) {
    return rb_gc_count() - (rb_gc_latest_gc_info(state) == marking);
}

size_t memscope_major_collections(void) {
    return rb_gc_stat(major_count);
}

bool memscope_collection_is_minor(void) {
    return NIL_P(rb_gc_latest_gc_info(major_by));
}
