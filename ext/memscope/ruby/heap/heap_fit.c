#include "ruby/heap/heap_fit.h"
#include "ruby/ruby_private.h"

#if defined(HAVE_RB_GC_OBJ_OPTIMAL_SIZE)

size_t memscope_fitting_bytes(VALUE object) {
    return rb_gc_obj_optimal_size(object);
}

#elif RUBY_API_VERSION_CODE >= 30200

/* array.c, rb_ary_size_as_embedded */
static size_t array_bytes(VALUE array) {
    size_t header = offsetof(struct RArray, as.ary);

    if (RB_FL_TEST_RAW(array, RARRAY_EMBED_FLAG))
        return header + sizeof(VALUE) * (size_t)RARRAY_LEN(array);
    if (RB_FL_TEST_RAW(array, MEMSCOPE_ARRAY_IS_SHARED_ROOT | RUBY_ELTS_SHARED | RUBY_FL_FREEZE))
        return sizeof(struct RArray);
    return header + sizeof(VALUE) * (size_t)RARRAY(array)->as.heap.aux.capa;
}

/* string.c, rb_str_size_as_embedded, with a terminator of one byte */
static size_t string_bytes(VALUE string) {
    size_t header = offsetof(struct RString, as.embed.ary);

    if (!RB_FL_TEST_RAW(string, RSTRING_NOEMBED))
        return header + (size_t)RSTRING_LEN(string) + 1;
    if (RB_FL_TEST_RAW(string, MEMSCOPE_STRING_IS_SHARED_ROOT | MEMSCOPE_STRING_IS_NOT_FREED | RUBY_ELTS_SHARED))
        return sizeof(struct RString);
    return header + (size_t)RSTRING(string)->as.heap.aux.capa + 1;
}

/* hash.c, hash_alloc_flags. Before 3.3 the table was not in the slot. */
static size_t hash_bytes(VALUE hash) {
    if (!MEMSCOPE_HASH_TABLE_IS_INSIDE)
        return 0;
    return MEMSCOPE_HASH_TABLE_OFFSET +
           (RB_FL_TEST_RAW(hash, MEMSCOPE_HASH_HAS_TABLE) ? sizeof(st_table) : MEMSCOPE_SMALL_HASH_TABLE_BYTES);
}

size_t memscope_fitting_bytes(VALUE object) {
    switch (RB_BUILTIN_TYPE(object)) {
    case RUBY_T_ARRAY:
        return array_bytes(object);
    case RUBY_T_STRING:
        return string_bytes(object);
    case RUBY_T_HASH:
        return hash_bytes(object);
    case RUBY_T_OBJECT: /* its shape decides, which no public interface exposes */
        return MEMSCOPE_OBJECT_IS_EMBEDDED(object) ? 0 : MEMSCOPE_UNKNOWN_FIT;
    default:
        return 0;
    }
}

#else

size_t memscope_fitting_bytes(VALUE object) {
    return 0;
}

#endif
