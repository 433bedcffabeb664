/*
 * The bitmaps of heap pages (ruby/heap/mark_bits.c): a copy of that file which can be given wrong places, and which is
 * not the one that the gem uses.
 */
#include "memscope_test.h"

#include "ruby/heap/mark_bits.c" /* NOLINT(bugprone-suspicious-include) */

#include <ruby/debug.h>
#include <stdlib.h>

#if MEMSCOPE_KNOWS_MARK_BITS

static void add_hook(void (*hook)(VALUE data, rb_trace_arg_t *event)) {
    rb_add_event_hook2((rb_event_hook_func_t)(void (*)(void))hook, RUBY_INTERNAL_EVENT_GC_END_MARK, Qnil,
                       (rb_event_hook_flag_t)(RUBY_EVENT_HOOK_FLAG_SAFE | RUBY_EVENT_HOOK_FLAG_RAW_ARG));
}

static void remove_hook(void (*hook)(VALUE data, rb_trace_arg_t *event)) {
    rb_remove_event_hook((rb_event_hook_func_t)(void (*)(void))hook);
}

static uintptr_t *objects;
static size_t object_count, object_room, compared[KINDS], differences;

static int add_objects(void *start, void *end, size_t stride, void *unused) {
    for (uintptr_t object = (uintptr_t)start; object < (uintptr_t)end; object += stride) {
        enum ruby_value_type type = RB_BUILTIN_TYPE(object);

        if (type == RUBY_T_NONE || type == RUBY_T_ZOMBIE || type == RUBY_T_MOVED)
            continue;
        if (object_count == object_room) {
            object_room = object_room * 2 + 65536;
            objects = realloc(objects, object_room * sizeof *objects);
            if (!objects)
                abort();
        }
        objects[object_count++] = object;
    }
    return 0;
}

static void compare_objects(VALUE data, rb_trace_arg_t *event) {
    for (; object_count > 0; object_count--) {
        enum memscope_object_age age = age_by_ruby(objects[object_count - 1]);

        compared[age]++;
        differences += age_in_bits(objects[object_count - 1]) != age;
    }
}

/*
 * Host.compare_marks { GC.start } -> [dead, young, old, differences]: when the GC of the block has marked, asks both
 * Ruby and the bitmaps about each object of the heap.
 */
static VALUE host_compare_marks(VALUE self) {
    VALUE counts = rb_ary_new();

    intern_flags();
    if (!find_places())
        return Qnil;
    differences = 0;
    for (int kind = 0; kind < KINDS; kind++)
        compared[kind] = 0;
    add_hook(compare_objects);
    rb_objspace_each_objects(add_objects, NULL);
    rb_yield(Qnil);
    remove_hook(compare_objects);
    object_count = 0;
    for (int kind = 0; kind < KINDS; kind++)
        rb_ary_push(counts, SIZET2NUM(compared[kind]));
    return rb_ary_push(counts, SIZET2NUM(differences));
}

static void prove(VALUE data, rb_trace_arg_t *event) {
    memscope_mark_bits_compare();
}

static VALUE state_name(void) {
    return ID2SYM(rb_intern(state == PROVEN ? "proven" : state == REFUSED ? "refused" : "unproven"));
}

static void misplace(VALUE place, VALUE bytes) {
    if (place == ID2SYM(rb_intern("start")))
        places.start += NUM2LONG(bytes);
    else if (place == ID2SYM(rb_intern("marked")))
        places.marked += NUM2LONG(bytes);
    else
        places.uncollectible += NUM2LONG(bytes);
}

/*
 * Host.prove_marks(place, bytes) { GC.start } -> :proven, :refused or :unproven: the state of the proof after the GCs
 * of the block, if this place (:start, :marked or :uncollectible) is `bytes` off from the beginning.
 */
static VALUE host_prove_marks(VALUE self, VALUE place, VALUE bytes) {
    state = UNPROVEN;
    memscope_mark_bits_begin();
    misplace(place, bytes);
    add_hook(prove);
    rb_yield(Qnil);
    remove_hook(prove);
    memscope_mark_bits_end();
    return state_name();
}

/* Host.misplace_proven_marks(place, bytes, count) -> :proven or :refused, after `count` answers from a wrong place. */
static VALUE host_misplace_proven_marks(VALUE self, VALUE place, VALUE bytes, VALUE count) {
    misplace(place, bytes);
    for (long answer = 0; answer < NUM2LONG(count); answer++)
        memscope_mark_bits_age(rb_cObject);
    return state_name();
}

/* Host.unseen_marks -> nil: as after a GC that no hook saw. */
static VALUE host_unseen_marks(VALUE self) {
    memscope_mark_bits_unseen();
    return Qnil;
}

/* Host.mark_bitmap_bytes -> Integer, or nil if this Ruby's bitmaps are not known. */
static VALUE host_mark_bitmap_bytes(VALUE self) {
    return find_places() ? SIZET2NUM(places.uncollectible - places.marked) : Qnil;
}

void init_marks(VALUE host) {
    rb_define_singleton_method(host, "compare_marks", host_compare_marks, 0);
    rb_define_singleton_method(host, "prove_marks", host_prove_marks, 2);
    rb_define_singleton_method(host, "misplace_proven_marks", host_misplace_proven_marks, 3);
    rb_define_singleton_method(host, "unseen_marks", host_unseen_marks, 0);
    rb_define_singleton_method(host, "mark_bitmap_bytes", host_mark_bitmap_bytes, 0);
}

#else

static VALUE host_mark_bitmap_bytes(VALUE self) {
    return Qnil;
}

void init_marks(VALUE host) {
    rb_define_singleton_method(host, "mark_bitmap_bytes", host_mark_bitmap_bytes, 0);
}

#endif
