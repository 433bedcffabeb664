#include "bindings/profile_values.h"
#include "bindings/reasons.h"

#include <math.h>

static VALUE frame(const char *kind, VALUE name, VALUE path, VALUE lineno, VALUE library) {
    return memscope_hash_of({"kind", memscope_symbol(kind)}, {"name", name}, {"path", path}, {"lineno", lineno},
                            {"library", library});
}

VALUE memscope_native_frame(VALUE name, VALUE library) {
    return frame("native", name, Qnil, Qnil, library);
}

VALUE memscope_state_frame(enum memscope_stack_state state) {
    static const char *const names[] = {
        [MEMSCOPE_STACK_DURING_GC] = "[during GC]",
        [MEMSCOPE_STACK_NO_GVL] = "[no GVL]",
        [MEMSCOPE_STACK_NOT_RUBY] = "[non-Ruby thread]",
        [MEMSCOPE_STACK_RUBY_ENDED] = "[Ruby has ended]",
        [MEMSCOPE_STACK_NO_FRAMES] = "[no Ruby frames]",
        [MEMSCOPE_STACK_NO_ROOM] = "[no room]",
        [MEMSCOPE_STACK_CALLERS_DROPPED] = "[callers dropped]",
    };

    return frame("state", rb_utf8_str_new_cstr(names[state]), Qnil, Qnil, Qnil);
}

VALUE memscope_ruby_frame(VALUE name, VALUE path, uint32_t line) {
    bool has_line = line > 0 && !NIL_P(path);

    return frame("ruby", name, has_line ? path : Qnil, has_line ? UINT2NUM(line) : Qnil, Qnil);
}

VALUE memscope_number_of_frame(struct memscope_profile_frames *frames, uint64_t word) {
    VALUE key = ULL2NUM(word), number = rb_hash_aref(frames->numbers, key), made;

    if (!NIL_P(number))
        return number;
    made = frames->frame_of(word, frames->context);
    number = rb_hash_aref(frames->numbers, made); /* many addresses are in the same function */
    if (NIL_P(number)) {
        number = LONG2NUM(RARRAY_LEN(frames->list));
        rb_ary_push(frames->list, made);
        rb_hash_aset(frames->numbers, made, number);
    }
    rb_hash_aset(frames->numbers, key, number);
    return number;
}

uint64_t memscope_rounded(double value) {
    return value > 0 ? (uint64_t)llround(value) : 0;
}

VALUE memscope_estimate(double value) {
    return ULL2NUM(memscope_rounded(value));
}

void memscope_set_sampling_reasons(VALUE reasons, const char *objects,
                                   const struct memscope_object_sampler_state *state) {
    uint64_t dropped = state->overhead.dropped_samples, missed = state->overhead.missed_collections;

    if (dropped > 0)
        memscope_set_reason_of(reasons, "samples", "samples_dropped", ULL2NUM(dropped));
    else if (missed > 0)
        memscope_set_reason_of(reasons, "samples", "collections_without_loss", ULL2NUM(missed));
    if (state->plan.out_of_reach)
        memscope_set_reason_of(reasons, objects, "reach_cut", ULL2NUM(MEMSCOPE_MAX_REACH));
}
