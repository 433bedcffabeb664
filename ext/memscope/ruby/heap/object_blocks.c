#include "ruby/heap/object_blocks.h"
#include "ruby/heap/pin_survey.h"
#include "ruby/held_memory.h"
#include "ruby/ruby_private.h"

#include <ruby/re.h>
#include <ruby/st.h>

static bool knows_structs, knows_bignums, knows_small_hashes;
/* Numbers of these imemo types, -1 if this Ruby has none. */
static int environment_type = -1, buffer_type = -1, fields_type = -1, code_type = -1, method_type = -1;
/* The type of an st_table keyed by numbers. An object with too many shapes keeps its variables in such a table. */
static const struct st_hash_type *numbers_type;

struct showing {
    memscope_owned_block *show;
    void *data;
};

static void show(const struct showing *showing, const void *block) {
    if (block != NULL)
        showing->show(block, showing->data);
}

static uintptr_t word(VALUE object, size_t index) {
    return ((const uintptr_t *)object)[index];
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static void show_table(const struct showing *showing, const st_table *table, bool inside) {
    if (!inside)
        show(showing, table);
    show(showing, table->entries);
    show(showing, MEMSCOPE_BINS_OF_TABLE(table));
}

/* Variables are an array of values, or a table if there were too many shapes. */
static void show_variables(const struct showing *showing, const void *variables) {
    const st_table *table = variables;

    if (variables == NULL)
        return;
    if (table->type == numbers_type)
        show_table(showing, table, false);
    else
        show(showing, variables);
}

static bool show_hash(const struct showing *showing, VALUE hash) {
    if (RB_FL_TEST_RAW(hash, MEMSCOPE_HASH_HAS_TABLE)) {
        if (memscope_knows_hash_tables())
            show_table(showing, memscope_table_of_hash(hash), MEMSCOPE_HASH_TABLE_IS_INSIDE);
        return memscope_knows_hash_tables();
    }
    if (MEMSCOPE_HASH_TABLE_IS_INSIDE || RB_FL_TEST_RAW(hash, MEMSCOPE_HASH_IS_TRANSIENT))
        return true;
    if (knows_small_hashes)
        show(showing, *(const void *const *)((const char *)hash + MEMSCOPE_HASH_TABLE_OFFSET));
    return knows_small_hashes;
}

/* ---- Ruby's own types ------------------------------------------------------------------------------------------ */

static void show_string(const struct showing *showing, VALUE string) {
    if (RB_FL_TEST_RAW(string, RSTRING_NOEMBED) &&
        !RB_FL_TEST_RAW(string, RUBY_ELTS_SHARED | MEMSCOPE_STRING_IS_NOT_FREED))
        show(showing, RSTRING(string)->as.heap.ptr);
}

static void show_array(const struct showing *showing, VALUE array) {
    if (!RB_FL_TEST_RAW(array, RARRAY_EMBED_FLAG | RUBY_ELTS_SHARED | MEMSCOPE_ARRAY_IS_TRANSIENT))
        show(showing, RARRAY(array)->as.heap.ptr);
}

static bool show_object(const struct showing *showing, VALUE object) {
#ifdef MEMSCOPE_VARIABLES_OF_OBJECT
    if (!MEMSCOPE_OBJECT_IS_EMBEDDED(object) && !RB_FL_TEST_RAW(object, MEMSCOPE_OBJECT_IS_TRANSIENT))
        show_variables(showing, MEMSCOPE_VARIABLES_OF_OBJECT(object));
    return true;
#else
    return MEMSCOPE_OBJECT_IS_EMBEDDED(object);
#endif
}

/* struct RStruct (internal/struct.h): the length and the address of the values, unless they are in the slot. */
static bool show_struct(const struct showing *showing, VALUE object) {
    if (!knows_structs)
        return false;
    if (!RB_FL_TEST_RAW(object, MEMSCOPE_STRUCT_IS_EMBEDDED | MEMSCOPE_STRUCT_IS_TRANSIENT) && word(object, 2) > 0)
        show(showing, (const void *)word(object, 3));
    return true;
}

/* struct RBignum (internal/bignum.h): like a Struct, with digits in place of values. */
static bool show_bignum(const struct showing *showing, VALUE number) {
    if (knows_bignums && !RB_FL_TEST_RAW(number, MEMSCOPE_BIGNUM_IS_EMBEDDED))
        show(showing, (const void *)word(number, 3));
    return knows_bignums;
}

#if MEMSCOPE_KNOWS_PATTERNS
static bool show_match(const struct showing *showing, VALUE match) {
#ifdef RMATCH_EXT
    const rb_matchext_t *found = RMATCH_EXT(match);
#else
    const struct rmatch *found = RMATCH(match)->rmatch;

    show(showing, found);
    if (found == NULL)
        return true;
#endif
    show(showing, found->regs.beg);
    show(showing, found->regs.end);
    show(showing, found->char_offset);
    return true;
}

/* Leaves out the blocks of group names and of a pattern's options. */
static bool show_regexp(const struct showing *showing, VALUE regexp) {
    const struct re_pattern_buffer *pattern = RREGEXP(regexp)->ptr;

    show(showing, pattern);
    if (pattern == NULL)
        return true;
    show(showing, pattern->p);
    show(showing, pattern->exact);
    show(showing, pattern->int_map);
    show(showing, pattern->int_map_backward);
    show(showing, pattern->repeat_range);
    return true;
}
#endif

/* Instance variables of objects that are not T_OBJECT. */
static bool show_generic_variables(const struct showing *showing, VALUE object) {
#if defined(HAVE_RB_IVAR_GENERIC_IVTBL_LOOKUP) && RUBY_API_VERSION_CODE < 30300
    struct gen_ivtbl *variables;

    if (rb_ivar_generic_ivtbl_lookup(object, &variables))
        show(showing, variables);
    return true;
#else
    return false;
#endif
}

/* ---- internal types -------------------------------------------------------------------------------------------- */

/* rb_env_t (vm_core.h): flags, iseq, ep (which points into the values), env (the values), env_size. */
static void show_environment(const struct showing *showing, VALUE object) {
    uintptr_t used = word(object, 2), values = word(object, 3);
    size_t count = *(const unsigned int *)((const uintptr_t *)object + 4);

    if (used >= values && used < values + count * sizeof(VALUE) && count < 1 << 24)
        show(showing, (const void *)values);
}

static bool show_internal(const struct showing *showing, VALUE object) {
    int type = MEMSCOPE_IMEMO_KIND(object);

    if (type == environment_type)
        show_environment(showing, object);
    else if (type == buffer_type) /* rb_imemo_tmpbuf_t: two words, then the buffer */
        show(showing, (const void *)word(object, 2));
    else if (type == fields_type && RB_FL_TEST_RAW(object, MEMSCOPE_FIELDS_ARE_OUTSIDE))
        show_variables(showing, (const void *)word(object, 2));
    return type != code_type && type != method_type;
}

/* Since 3.3, data may be in the slot, behind the other fields. */
#ifdef TYPED_DATA_EMBEDDED
#define DATA_OF(object) RTYPEDDATA_GET_DATA(object)
#else
#define DATA_OF(object) RTYPEDDATA_DATA(object)
#endif

static bool is_in_slot(VALUE object, const void *data) {
    return (uintptr_t)data - object < sizeof(struct RTypedData);
}

/* An object owns its data only if its type has a function to free it. */
static bool show_data(const struct showing *showing, VALUE object) {
    RUBY_DATA_FUNC release = MEMSCOPE_FREE_OF_DATA(object);
    const void *data = RTYPEDDATA_P(object) ? DATA_OF(object) : MEMSCOPE_UNTYPED_DATA(object);
    size_t bytes;

    if (data == NULL || release == RUBY_NEVER_FREE)
        return true;
    if (!is_in_slot(object, data))
        show(showing, data);
    show(showing, memscope_block_of_buffer(object, &bytes));
    return release == RUBY_DEFAULT_FREE;
}

/* ---- an object ------------------------------------------------------------------------------------------------- */

static bool show_own(const struct showing *showing, VALUE object) {
    switch (RB_BUILTIN_TYPE(object)) {
    case RUBY_T_STRING:
        show_string(showing, object);
        return true;
    case RUBY_T_ARRAY:
        show_array(showing, object);
        return true;
    case RUBY_T_HASH:
        return show_hash(showing, object);
    case RUBY_T_OBJECT:
        return show_object(showing, object);
    case RUBY_T_STRUCT:
        return show_struct(showing, object);
    case RUBY_T_BIGNUM:
        return show_bignum(showing, object);
#if MEMSCOPE_KNOWS_PATTERNS
    case RUBY_T_MATCH:
        return show_match(showing, object);
    case RUBY_T_REGEXP:
        return show_regexp(showing, object);
#else
    case RUBY_T_MATCH:
    case RUBY_T_REGEXP:
#endif
    case RUBY_T_CLASS:
    case RUBY_T_MODULE:
    case RUBY_T_ICLASS:
    case RUBY_T_NODE:
        return false;
    case RUBY_T_FILE:
        show(showing, RFILE(object)->fptr);
        return RFILE(object)->fptr == NULL;
    case RUBY_T_DATA:
        return show_data(showing, object);
    case RUBY_T_IMEMO:
        return show_internal(showing, object);
    default:
        return true;
    }
}

bool memscope_object_blocks(VALUE object, memscope_owned_block *visit, void *data) {
    const struct showing showing = {visit, data};
    bool all = show_own(&showing, object);

    if (MEMSCOPE_HAS_GENERIC_VARIABLES(object) && RB_BUILTIN_TYPE(object) != RUBY_T_IMEMO)
        all = show_generic_variables(&showing, object) && all;
    return all;
}

/* ---- layouts of this Ruby -------------------------------------------------------------------------------------- */

/* A Struct with one member, and one with more members than fit into any slot. Methods' names make no new Symbols. */
static void learn_structs(void) {
    enum { MEMBERS = 130 };
    VALUE names = rb_eval_string("(String.instance_methods(false) | Array.instance_methods(false))"
                                 ".grep(/\\A[a-z_]+\\z/).first(130)");
    VALUE small, large;
    const VALUE *values;

    if (RARRAY_LEN(names) < MEMBERS)
        return;
    small = rb_funcall(rb_cStruct, rb_intern("new"), 1, rb_ary_entry(names, 0));
    large = rb_funcallv(rb_cStruct, rb_intern("new"), MEMBERS, RARRAY_CONST_PTR(names));
    small = rb_class_new_instance(1, RARRAY_CONST_PTR(names), small);
    large = rb_class_new_instance(MEMBERS, RARRAY_CONST_PTR(names), large);
    values = word(large, 2) == MEMBERS ? (const VALUE *)word(large, 3) : RARRAY_CONST_PTR(names);
    knows_structs = RB_FL_TEST_RAW(small, MEMSCOPE_STRUCT_IS_EMBEDDED) && word(small, 2) == rb_ary_entry(names, 0) &&
                    !RB_FL_TEST_RAW(large, MEMSCOPE_STRUCT_IS_EMBEDDED) && word(large, 2) == MEMBERS &&
                    values[0] == rb_ary_entry(names, 0) && values[MEMBERS - 1] == rb_ary_entry(names, MEMBERS - 1);
    RB_GC_GUARD(small);
    RB_GC_GUARD(large);
}

/* 2**65, and 2**6400 + 4711, whose lowest digit is known. */
static void learn_bignums(void) {
    enum { BYTES = 800 };
    VALUE small = rb_eval_string("2**65"), large = rb_eval_string("2**6400 + 4711");
    const char *digits;

    if (!RB_TYPE_P(small, RUBY_T_BIGNUM) || !RB_TYPE_P(large, RUBY_T_BIGNUM) ||
        !RB_FL_TEST_RAW(small, MEMSCOPE_BIGNUM_IS_EMBEDDED) || RB_FL_TEST_RAW(large, MEMSCOPE_BIGNUM_IS_EMBEDDED))
        return;
    digits = (const char *)word(large, 3);
    for (size_t bytes = 4; bytes <= 8; bytes += 4)
        if (word(large, 2) == BYTES / bytes + 1 && *(const uint32_t *)digits == 4711 &&
            *(const uint32_t *)(digits + BYTES) == 1)
            knows_bignums = true;
    RB_GC_GUARD(small);
    RB_GC_GUARD(large);
}

/* Before 3.3, the table of a small Hash is an array of pairs. */
static void learn_small_hashes(void) {
    VALUE small = rb_hash_new();
    const VALUE *pairs;

    if (MEMSCOPE_HASH_TABLE_IS_INSIDE || !memscope_knows_hash_tables())
        return;
    rb_hash_aset(small, INT2FIX(4711), INT2FIX(4712));
    pairs = *(const VALUE *const *)((const char *)small + MEMSCOPE_HASH_TABLE_OFFSET);
    knows_small_hashes = pairs[0] == INT2FIX(4711) && pairs[1] == INT2FIX(4712);
    RB_GC_GUARD(small);
}

void memscope_object_blocks_learn(void) {
    static bool learnt;
    st_table *numbers;

    if (learnt)
        return;
    numbers = st_init_numtable();
    numbers_type = numbers->type;
    st_free_table(numbers);
    learn_structs();
    learn_bignums();
    learn_small_hashes();
    environment_type = memscope_imemo_kind("env");
    buffer_type = memscope_imemo_kind("tmpbuf");
    fields_type = memscope_imemo_kind("fields");
    code_type = memscope_imemo_kind("iseq");
    method_type = memscope_imemo_kind("ment");
    learnt = true;
}
