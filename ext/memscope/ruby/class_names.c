#include "ruby/class_names.h"

#include "base/mapped_array.h"
#include "ruby/ruby_private.h"

#include <stdio.h>
#include <string.h>

/* The size of the table, a power of two. Once it is half full, further names are written each time. */
#define KNOWN_NAMES ((size_t)1 << 17)
#define MAX_TEXT 512

struct memscope_known_name {
    uint64_t key; /* a class, a class + 2 for its instances, ID << 2 | 1, or a type's key (name_of_type), 0 if none */
    uint32_t number;
};

enum memscope_status memscope_class_names_open(struct memscope_class_names *class_names, struct memscope_names *names) {
    *class_names = (struct memscope_class_names){.names = names};
    class_names->known = memscope_array_map(KNOWN_NAMES, sizeof *class_names->known);
    return class_names->known == NULL ? MEMSCOPE_NO_MEMORY : MEMSCOPE_OK;
}

void memscope_class_names_close(struct memscope_class_names *class_names) {
    memscope_array_unmap(class_names->known);
    class_names->known = NULL;
}

/* ---- known names ----------------------------------------------------------------------------------------------- */

/* A key's number, which the caller sets if it is 0. Without room for the key, a place that further keys share. */
static uint32_t *number_of(struct memscope_class_names *class_names, uint64_t key) {
    size_t place = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (KNOWN_NAMES - 1);

    while (class_names->known[place].key != 0 && class_names->known[place].key != key)
        place = (place + 1) & (KNOWN_NAMES - 1);
    if (class_names->known[place].key == 0) {
        class_names->unkept = 0;
        if (class_names->known_count >= KNOWN_NAMES / 2)
            return &class_names->unkept;
        class_names->known[place].key = key;
        class_names->known_count++;
    }
    return &class_names->known[place].number;
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */

static const char *const type_names[RUBY_T_MASK + 1] = {
    [RUBY_T_NONE] = "T_NONE",     [RUBY_T_OBJECT] = "T_OBJECT", [RUBY_T_CLASS] = "T_CLASS",
    [RUBY_T_MODULE] = "T_MODULE", [RUBY_T_FLOAT] = "T_FLOAT",   [RUBY_T_STRING] = "T_STRING",
    [RUBY_T_REGEXP] = "T_REGEXP", [RUBY_T_ARRAY] = "T_ARRAY",   [RUBY_T_HASH] = "T_HASH",
    [RUBY_T_STRUCT] = "T_STRUCT", [RUBY_T_BIGNUM] = "T_BIGNUM", [RUBY_T_FILE] = "T_FILE",
    [RUBY_T_DATA] = "T_DATA",     [RUBY_T_MATCH] = "T_MATCH",   [RUBY_T_COMPLEX] = "T_COMPLEX",
    [RUBY_T_SYMBOL] = "T_SYMBOL", [RUBY_T_IMEMO] = "T_IMEMO",   [RUBY_T_RATIONAL] = "T_RATIONAL",
    [RUBY_T_NODE] = "T_NODE",     [RUBY_T_ICLASS] = "T_ICLASS", [RUBY_T_ZOMBIE] = "T_ZOMBIE",
    [RUBY_T_MOVED] = "T_MOVED",
};

const char *memscope_type_name(int type) {
    const char *name = type < 0 || type > (int)RUBY_T_MASK ? NULL : type_names[type];

    return name == NULL ? "T_UNKNOWN" : name;
}

/* False for a class in an anonymous module, whose name would begin with an address: "#<Module:0x0000…>::C". */
static bool is_named(VALUE module, VALUE *name) {
    *name = rb_mod_name(module);
    return !NIL_P(*name) && *name != 0 && RSTRING_LEN(*name) > 0 && RSTRING_PTR(*name)[0] != '#';
}

static int shown_length(VALUE name) {
    return RSTRING_LEN(name) > MAX_TEXT ? MAX_TEXT : (int)RSTRING_LEN(name);
}

bool memscope_is_singleton_class(VALUE module) {
    return RB_BUILTIN_TYPE(module) == RUBY_T_CLASS && RB_FL_TEST_RAW(module, RUBY_FL_SINGLETON);
}

bool memscope_is_named_module(VALUE module) {
    VALUE name;

    return !memscope_is_singleton_class(module) && is_named(module, &name);
}

static size_t write_text(char text[MEMSCOPE_CLASS_TEXT], const char *begins, VALUE name, const char *ends) {
    return (size_t)snprintf(text, MEMSCOPE_CLASS_TEXT, "%s%.*s%s", begins, shown_length(name), RSTRING_PTR(name), ends);
}

static size_t write_constant(char text[MEMSCOPE_CLASS_TEXT], const char *constant) {
    return (size_t)snprintf(text, MEMSCOPE_CLASS_TEXT, "%s", constant);
}

/* Names a class by its nearest ancestor with a name. */
static size_t write_anonymous(char text[MEMSCOPE_CLASS_TEXT], VALUE module) {
    VALUE ancestor = module, name;

    do {
        ancestor = RB_BUILTIN_TYPE(ancestor) == RUBY_T_CLASS ? rb_class_get_superclass(ancestor) : 0;
        if (ancestor != 0)
            ancestor = rb_class_real(ancestor);
    } while (ancestor != 0 && !is_named(ancestor, &name));
    return ancestor == 0 ? write_constant(text, "anonymous") : write_text(text, "", name, " (anonymous subclass)");
}

static size_t write_singleton(char text[MEMSCOPE_CLASS_TEXT], VALUE singleton) {
    VALUE owner = MEMSCOPE_OWNER_OF_SINGLETON(singleton), name;
    bool of_module;

    if (RB_SPECIAL_CONST_P(owner) || owner == 0)
        return write_constant(text, "anonymous");
    of_module = RB_BUILTIN_TYPE(owner) == RUBY_T_CLASS || RB_BUILTIN_TYPE(owner) == RUBY_T_MODULE;
    if (!of_module)
        owner = rb_class_real(RBASIC_CLASS(owner));
    if (owner == 0 || !is_named(owner, &name))
        return write_constant(text, "#<Class:anonymous>");
    return of_module ? write_text(text, "#<Class:", name, ">") : write_text(text, "#<Class:#<", name, ">>");
}

static size_t write_module(char text[MEMSCOPE_CLASS_TEXT], VALUE module) {
    VALUE name;

    if (memscope_is_singleton_class(module))
        return write_singleton(text, module);
    return is_named(module, &name) ? write_text(text, "", name, "") : write_anonymous(text, module);
}

static size_t write_type(char text[MEMSCOPE_CLASS_TEXT], int type, int kind) {
    if (type != RUBY_T_IMEMO)
        return write_constant(text, memscope_type_name(type));
    return (size_t)snprintf(text, MEMSCOPE_CLASS_TEXT, "imemo_%s", MEMSCOPE_IMEMO_NAME(kind));
}

/* The class by which an object is named, 0 if it is hidden, or named by its kind or type. */
static VALUE naming_class(VALUE object) {
    return memscope_has_class(RB_BUILTIN_TYPE(object)) ? RBASIC_CLASS(object) : 0;
}

struct memscope_naming memscope_naming_of(VALUE object) {
    VALUE class = naming_class(object), real = class == 0 ? 0 : rb_class_real(class);
    int type = RB_BUILTIN_TYPE(object);

    return (struct memscope_naming){real, type, type == RUBY_T_IMEMO ? MEMSCOPE_IMEMO_KIND(object) : 0};
}

size_t memscope_write_naming(char text[MEMSCOPE_CLASS_TEXT], struct memscope_naming naming) {
    return naming.class != 0 ? write_module(text, naming.class) : write_type(text, naming.type, naming.kind);
}

const char *memscope_data_type_of(VALUE object, VALUE class) {
    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA || (class != 0 && class != rb_cObject) || !RTYPEDDATA_P(object))
        return NULL;
    return RTYPEDDATA_TYPE(object)->wrap_struct_name;
}

size_t memscope_write_class_of(char text[MEMSCOPE_CLASS_TEXT], VALUE object) {
    struct memscope_naming naming = memscope_naming_of(object);
    const char *data_type = memscope_data_type_of(object, naming.class);

    return data_type != NULL ? write_constant(text, data_type) : memscope_write_naming(text, naming);
}

static uint32_t add(struct memscope_class_names *class_names, const char *text, size_t length) {
    return memscope_names_add(class_names->names, text, length);
}

uint32_t memscope_name_of_module(struct memscope_class_names *class_names, VALUE module) {
    uint32_t *number = number_of(class_names, module);
    char text[MEMSCOPE_CLASS_TEXT];

    if (*number == 0)
        *number = add(class_names, text, write_module(text, module));
    return *number;
}

uint32_t memscope_name_of_type(struct memscope_class_names *class_names, int type, int kind) {
    uint32_t *number = number_of(class_names, (uint64_t)(type << 8 | kind) << 3 | 6); /* no class, or class + 2 */
    char text[MEMSCOPE_CLASS_TEXT];

    if (*number == 0)
        *number = add(class_names, text, write_type(text, type, kind));
    return *number;
}

uint32_t memscope_name_of_data_type(struct memscope_class_names *class_names, const char *name) {
    return add(class_names, name, strnlen(name, MAX_TEXT));
}

uint32_t memscope_name_of_class_of(struct memscope_class_names *class_names, VALUE object) {
    int type = RB_BUILTIN_TYPE(object);
    VALUE class = naming_class(object), real;
    uint32_t *number;
    const char *data_type = type == RUBY_T_DATA ? memscope_data_type_of(object, rb_class_real(class)) : NULL;

    if (data_type != NULL)
        return memscope_name_of_data_type(class_names, data_type);
    if (class == 0)
        return memscope_name_of_type(class_names, type, type == RUBY_T_IMEMO ? MEMSCOPE_IMEMO_KIND(object) : 0);
    number = number_of(class_names, class + 2); /* the key `class` is for the class's own name */
    if (*number == 0) {
        real = rb_class_real(class);
        *number = real == 0 ? memscope_name_of_type(class_names, type, 0) : memscope_name_of_module(class_names, real);
    }
    return *number;
}

uint32_t memscope_name_of_id(struct memscope_class_names *class_names, ID id) {
    uint32_t *number = number_of(class_names, (uint64_t)id << 2 | 1);
    VALUE text = *number == 0 ? rb_id2str(id) : Qnil;

    if (!NIL_P(text) && text != 0)
        *number = add(class_names, RSTRING_PTR(text), (size_t)shown_length(text));
    return *number;
}
