#include "ruby/graph/named_references.h"
#include "base/own_memory.h"
#include "ruby/ruby_private.h"

struct naming {
    memscope_named_reference *callback;
    struct memscope_class_names *names;
    void *data;
};

static void tell(const struct naming *naming, VALUE to, enum memscope_edge_kind kind, uint32_t number) {
    if (!RB_SPECIAL_CONST_P(to) && to != 0)
        naming->callback(to, MEMSCOPE_EDGE_NAME(kind, number), naming->data);
}

/* ---- constants ------------------------------------------------------------------------------------------------- */

/*
 * The place of a class's pointer to its constant table: at inside_offset in its slot or, if is_outside, at
 * outside_offset in the memory that the pointer at inside_offset points to.
 */
static struct {
    bool known, is_outside;
    size_t inside_offset, outside_offset;
} constants;

static const struct memscope_id_table *constants_of(VALUE module) {
    const char *place = (const char *)module + constants.inside_offset;

    if (!constants.known)
        return NULL;
    if (constants.is_outside) {
        place = *(const char *const *)place;
        if (place == NULL)
            return NULL;
        place += constants.outside_offset;
    }
    return *(const struct memscope_id_table *const *)place;
}

static void tell_constants(const struct naming *naming, VALUE module) {
    const struct memscope_id_table *table = constants_of(module);

    for (int index = 0; table != NULL && index < table->capacity; index++) {
        const struct memscope_id_item *item = &table->items[index];
        VALUE value;

        if (item->key == 0 || item->value == NULL)
            continue;
        value = item->value->value;
        if (!RB_SPECIAL_CONST_P(value) && value != 0)
            tell(naming, value, MEMSCOPE_EDGE_CONSTANT,
                 memscope_name_of_id(naming->names, MEMSCOPE_ID_OF_KEY(item->key)));
    }
}

/* ---- the layout of constants, learnt from modules with known constants ------------------------------------------ */

#define PROBED_SLOT_BYTES 512
#define PROBED_EXTENSION_BYTES 256
#define PROBED_CONSTANTS 3

struct constant_probe {
    struct memscope_own_memory *memory;
    VALUE module, values[PROBED_CONSTANTS];
    ID names[PROBED_CONSTANTS];
    int count;
    size_t slot_bytes;
};

static bool read_at(const struct constant_probe *probe, uintptr_t address, void *into, size_t size) {
    return address >= 4096 && address % sizeof(uintptr_t) == 0 &&
           memscope_own_memory_read(probe->memory, address, into, size);
}

static bool has_constant(const struct constant_probe *probe, const struct memscope_id_item *item, int which) {
    struct memscope_constant constant;

    return item->key != 0 &&
           MEMSCOPE_ID_OF_KEY(item->key) >> MEMSCOPE_ID_SHIFT == probe->names[which] >> MEMSCOPE_ID_SHIFT &&
           read_at(probe, (uintptr_t)item->value, &constant, sizeof constant) && constant.value == probe->values[which];
}

/* Returns true if a table with exactly the module's constants is at this address. */
static bool is_table(const struct constant_probe *probe, uintptr_t address) {
    struct memscope_id_table table;
    struct memscope_id_item items[16];
    int found = 0;

    if (!read_at(probe, address, &table, sizeof table) || table.count != probe->count || table.capacity < table.count ||
        table.capacity > 16 || !read_at(probe, (uintptr_t)table.items, items, (size_t)table.capacity * sizeof *items))
        return false;
    for (int index = 0; index < table.capacity; index++)
        for (int which = 0; which < probe->count; which++)
            found += has_constant(probe, &items[index], which);
    return found == probe->count;
}

static bool find_outside(const struct constant_probe *probe, uintptr_t extension) {
    for (size_t offset = 0; offset < PROBED_EXTENSION_BYTES; offset += sizeof(uintptr_t)) {
        uintptr_t table;

        if (!read_at(probe, extension + offset, &table, sizeof table))
            return false;
        constants.outside_offset = offset;
        if (is_table(probe, table))
            return true;
    }
    return false;
}

/* Looks in the slot first: a class may also refer to itself, and the table would then be found by that detour. */
static bool find_constants(const struct constant_probe *probe) {
    for (int outside = 0; outside <= 1; outside++)
        for (size_t offset = sizeof(struct RBasic); offset < probe->slot_bytes; offset += sizeof(uintptr_t)) {
            uintptr_t word;

            if (!read_at(probe, probe->module + offset, &word, sizeof word))
                return false;
            constants.inside_offset = offset;
            constants.is_outside = outside == 1;
            if (outside == 1 ? find_outside(probe, word) : is_table(probe, word))
                return true;
        }
    return false;
}

static void fill_probe(struct constant_probe *probe, int count) {
    static const char *const names[PROBED_CONSTANTS] = {"FIRST", "SECOND", "THIRD"};

    probe->module = rb_module_new();
    probe->count = count;
    probe->slot_bytes = MEMSCOPE_SLOT_BYTES(probe->module);
    if (probe->slot_bytes > PROBED_SLOT_BYTES)
        probe->slot_bytes = PROBED_SLOT_BYTES;
    for (int index = 0; index < count; index++) {
        probe->names[index] = rb_intern(names[index]);
        probe->values[index] = rb_obj_alloc(rb_cObject);
        rb_const_set(probe->module, probe->names[index], probe->values[index]);
    }
}

/* Finds the layout with one module, and checks it with another. */
static void learn_constants(struct memscope_own_memory *memory) {
    struct constant_probe first = {.memory = memory}, second = {.memory = memory};

    fill_probe(&first, PROBED_CONSTANTS);
    fill_probe(&second, PROBED_CONSTANTS - 1);
    constants.known = find_constants(&first);
    constants.known = constants.known && is_table(&second, (uintptr_t)constants_of(second.module));
    RB_GC_GUARD(first.module);
    RB_GC_GUARD(second.module);
}

/* ---- variables ------------------------------------------------------------------------------------------------- */

/* Skips variables with names that Ruby code cannot write: these are Ruby's own. */
static int tell_variable(ID id, VALUE value, st_data_t data) {
    const struct naming *naming = (const struct naming *)data;

    if (RB_SPECIAL_CONST_P(value))
        return ST_CONTINUE;
    if (rb_is_instance_id(id))
        tell(naming, value, MEMSCOPE_EDGE_IVAR, memscope_name_of_id(naming->names, id));
    else if (rb_is_class_id(id))
        tell(naming, value, MEMSCOPE_EDGE_CVAR, memscope_name_of_id(naming->names, id));
    return ST_CONTINUE;
}

static void tell_variables(const struct naming *naming, VALUE object) {
    rb_ivar_foreach(object, tell_variable, (st_data_t)naming);
}

/* ---- elements -------------------------------------------------------------------------------------------------- */

static void tell_element(const struct naming *naming, VALUE element, long index) {
    bool saturates = (unsigned long)index > MEMSCOPE_EDGE_NUMBER_MAX;

    tell(naming, element, MEMSCOPE_EDGE_INDEX, saturates ? MEMSCOPE_EDGE_NUMBER_MAX : (uint32_t)index);
}

/* An Array that shares the elements of another refers only to that other Array. */
static void tell_elements(const struct naming *naming, VALUE array) {
    if (!RB_FL_TEST_RAW(array, RARRAY_EMBED_FLAG) && RB_FL_TEST_RAW(array, RUBY_ELTS_SHARED))
        return;
    for (long index = 0; index < RARRAY_LEN(array); index++)
        tell_element(naming, RARRAY_AREF(array, index), index);
}

static void tell_members(const struct naming *naming, VALUE structure) {
    long count = FIX2LONG(rb_struct_size(structure));

    for (long index = 0; index < count; index++)
        tell_element(naming, rb_struct_aref(structure, LONG2FIX(index)), index);
}

/* The name of a key's class, as in node_class or, for a special constant, Integer, Symbol, … */
static uint32_t class_of_key(const struct naming *naming, VALUE key) {
    return RB_SPECIAL_CONST_P(key) ? memscope_name_of_module(naming->names, rb_class_of(key))
                                   : memscope_name_of_class_of(naming->names, key);
}

static int tell_pair(st_data_t key, st_data_t value, st_data_t data) {
    const struct naming *naming = (const struct naming *)data;

    tell(naming, (VALUE)key, MEMSCOPE_EDGE_KEY, 0);
    if (!RB_SPECIAL_CONST_P((VALUE)value))
        tell(naming, (VALUE)value, MEMSCOPE_EDGE_VALUE, class_of_key(naming, (VALUE)key));
    return ST_CONTINUE;
}

static void tell_pairs(const struct naming *naming, VALUE hash) {
#ifdef HAVE_RB_HASH_STLIKE_FOREACH
    if (rb_hash_size_num(hash) > 0)
        rb_hash_stlike_foreach(hash, tell_pair, (st_data_t)naming);
#endif
}

/* ---- captured locals ------------------------------------------------------------------------------------------- */

/* The locals of an environment come first in it, and three words of Ruby's own last. */
static void tell_locals(const struct naming *naming, VALUE environment) {
    const struct memscope_environment *found = (const struct memscope_environment *)environment;

    if (found->values == NULL || found->end < found->values + MEMSCOPE_ENVIRONMENT_WORDS - 1)
        return;
    for (const VALUE *local = found->values; local <= found->end - MEMSCOPE_ENVIRONMENT_WORDS; local++)
        tell(naming, *local, MEMSCOPE_EDGE_LOCAL, 0);
}

/* ---------------------------------------------------------------------------------------------------------------- */

static void tell_own(const struct naming *naming, VALUE object) {
    int type = RB_BUILTIN_TYPE(object);

    if (type == RUBY_T_CLASS || type == RUBY_T_MODULE)
        tell_constants(naming, object);
    else if (type == RUBY_T_ARRAY)
        tell_elements(naming, object);
    else if (type == RUBY_T_STRUCT)
        tell_members(naming, object);
    else if (type == RUBY_T_HASH)
        tell_pairs(naming, object);
}

void memscope_each_named_reference(VALUE from, memscope_named_reference *callback, struct memscope_class_names *names,
                                   void *data) {
    struct naming naming = {.callback = callback, .names = names, .data = data};

    switch (RB_BUILTIN_TYPE(from)) {
    case RUBY_T_IMEMO:
        if (MEMSCOPE_IS_ENVIRONMENT(from))
            tell_locals(&naming, from);
        else if (MEMSCOPE_IS_FIELDS(from))
            tell_variables(&naming, from);
        return;
    case RUBY_T_NODE:
    case RUBY_T_ICLASS:
    case RUBY_T_ZOMBIE:
    case RUBY_T_MOVED:
    case RUBY_T_NONE:
        return;
    default:
        tell(&naming, RBASIC_CLASS(from), MEMSCOPE_EDGE_CLASS, 0);
        tell_own(&naming, from);
        tell_variables(&naming, from);
    }
}

bool memscope_named_references_learn(void) {
    static bool learnt;
    struct memscope_own_memory memory;

    if (!learnt && memscope_own_memory_open(&memory) == MEMSCOPE_OK)
        learn_constants(&memory);
    if (!learnt)
        memscope_own_memory_close(&memory);
    learnt = true;
    return constants.known;
}
