#include "bindings/reasons.h"

#include "ruby/held_memory.h"

static VALUE objects_of(uint64_t objects, VALUE type) {
    return memscope_reason_of("objects_of_type", ULL2NUM(objects), type);
}

static VALUE left_out_types(const struct memscope_held_memory *held) {
    VALUE types = rb_ary_new();
    uint64_t others = held->left_out_objects;

    for (size_t index = 0; index < held->left_out_count; index++) {
        const struct memscope_left_out *type = &held->left_out[index];

        rb_ary_push(types, objects_of(type->objects, *type->name == '\0' ? memscope_reason("type_unnamed")
                                                                         : rb_str_new_cstr(type->name)));
        others -= type->objects;
    }
    if (others > 0)
        rb_ary_push(types, memscope_reason_of("objects_of_other_types", ULL2NUM(others)));
    return types;
}

void memscope_set_left_out_reason(VALUE reasons, const struct memscope_held_memory *held) {
    if (held->left_out_objects > 0)
        memscope_set_reason_of(reasons, "held_by_objects_bytes", "objects_left_out", left_out_types(held));
    if (held->outside_bytes > 0)
        memscope_set_reason_of(reasons, "buffers", "buffers_outside_malloc",
                               DBL2NUM((double)held->outside_bytes / (1 << 20)));
}

void memscope_set_unasked_reason(VALUE reasons, const char *key, const struct memscope_held_memory *held) {
    VALUE types = left_out_types(held);

    if (held->unasked_stacks > 0)
        rb_ary_push(types, objects_of(held->unasked_stacks, memscope_reason("stacks_unasked")));
    if (RARRAY_LEN(types) > 0)
        memscope_set_reason_of(reasons, key, "objects_unasked", types);
}
