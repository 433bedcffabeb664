#include "bindings/held_memory_reason.h"

void memscope_set_left_out_reason(VALUE reasons, const struct memscope_held_memory *held) {
    VALUE types = rb_ary_new();
    uint64_t others = held->left_out_objects;

    if (held->left_out_objects == 0)
        return;
    for (size_t index = 0; index < held->left_out_count; index++) {
        const struct memscope_left_out *type = &held->left_out[index];

        rb_ary_push(types, memscope_reason_of("objects_of_type", ULL2NUM(type->objects),
                                              *type->name == '\0' ? memscope_reason("type_unnamed")
                                                                  : rb_str_new_cstr(type->name)));
        others -= type->objects;
    }
    if (others > 0)
        rb_ary_push(types, memscope_reason_of("objects_of_other_types", ULL2NUM(others)));
    memscope_hash_set(reasons, "held_by_objects_bytes", memscope_reason_of("objects_left_out", types));
}
