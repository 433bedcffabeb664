#include "ruby/heap/roots.h"

#include "ruby/ruby_private.h"

/* A finalizer is a Proc or Method, or any other object with a method `call`, but hardly text or a collection. */
static bool may_be_finalizer(VALUE object) {
    if (RB_SPECIAL_CONST_P(object))
        return false;
    switch (RB_BUILTIN_TYPE(object)) {
    case RUBY_T_DATA:
    case RUBY_T_OBJECT:
    case RUBY_T_STRUCT:
    case RUBY_T_CLASS:
    case RUBY_T_MODULE:
        return true;
    default:
        return false;
    }
}

/* Leaves out the shared roots of Arrays, which are hidden too. */
bool memscope_may_be_finalizers(VALUE object) {
    long first = MEMSCOPE_FINALIZERS_FOLLOW_ID ? 1 : 0;

    if (RB_BUILTIN_TYPE(object) != RUBY_T_ARRAY || RBASIC_CLASS(object) != 0 || RARRAY_LEN(object) <= first ||
        RB_FL_TEST_RAW(object, MEMSCOPE_ARRAY_IS_SHARED_ROOT) ||
        (MEMSCOPE_FINALIZERS_FOLLOW_ID && !RB_INTEGER_TYPE_P(RARRAY_AREF(object, 0))))
        return false;
    for (long index = first; index < RARRAY_LEN(object); index++)
        if (!may_be_finalizer(RARRAY_AREF(object, index)))
            return false;
    return true;
}

struct visiting {
    void (*visit)(const char *category, VALUE object, void *data);
    void *data;
};

static void visit_finalizers(void *data, VALUE object, uint32_t slot, uint32_t slot_bytes) {
    const struct visiting *visiting = data;

    if (memscope_may_be_finalizers(object))
        visiting->visit("finalizers", object, visiting->data);
}

void memscope_each_root(const struct memscope_page_index *pages,
                        void (*visit)(const char *category, VALUE object, void *data), void *data) {
    struct visiting visiting = {visit, data};

    rb_objspace_reachable_objects_from_root(visit, data);
    if (MEMSCOPE_ROOTS_LACK_FINALIZERS)
        memscope_each_object(pages, visit_finalizers, &visiting);
}
