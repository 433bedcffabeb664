/*
 * Native.allocator, allocator_settings, allocator_inputs and environment_at_load.
 */
#include "bindings/reasons.h"

#include "init.h"
#include "malloc/allocator.h"
#include "malloc/allocator_environment.h"

#include <stdio.h>

static VALUE setting_value(const struct memscope_setting *setting) {
    switch (setting->type) {
    case MEMSCOPE_SETTING_BOOLEAN:
        return setting->value.boolean ? Qtrue : Qfalse;
    case MEMSCOPE_SETTING_UNSIGNED:
        return ULL2NUM(setting->value.number);
    case MEMSCOPE_SETTING_SIGNED:
        return LL2NUM(setting->value.signed_number);
    case MEMSCOPE_SETTING_TEXT:
        return rb_utf8_str_new_cstr(setting->value.text);
    case MEMSCOPE_SETTING_NOT_KNOWN:
        break;
    }
    return Qnil;
}

struct settings {
    VALUE list, reasons;
};

static void add_setting(const struct memscope_setting *setting, void *context) {
    const struct settings *settings = context;
    VALUE name = memscope_text_value(setting->name);

    rb_ary_push(settings->list, memscope_hash_of({"name", name}, {"value", setting_value(setting)},
                                                 {"source", rb_utf8_str_new_cstr(setting->source)},
                                                 {"given", memscope_text_value(setting->given)},
                                                 {"ignored", memscope_text_or_nil(setting->ignored)}));
    if (setting->reason)
        rb_hash_aset(settings->reasons, rb_to_symbol(name), rb_utf8_str_new_cstr(setting->reason));
}

static void add_conf(const char *source, const char *text, void *list) {
    rb_ary_push((VALUE)list, memscope_hash_of({"source", rb_utf8_str_new_cstr(source)},
                                              {"text", text ? rb_utf8_str_new_cstr(text) : Qnil}));
}

/*
 * Memscope::Native.allocator_settings. jemalloc's settings come without their sources, but with the option texts that
 * set them.
 */
VALUE native_allocator_settings(VALUE self) {
    struct settings settings = {rb_ary_new(), rb_hash_new()};
    VALUE confs = rb_ary_new(), variable = memscope_text_or_nil(memscope_allocator_confs(add_conf, (void *)confs));
    const char *reason = memscope_allocator_settings(add_setting, &settings);

    if (reason)
        memscope_hash_set(settings.reasons, "settings", rb_utf8_str_new_cstr(reason));
    return memscope_hash_of({"settings", settings.list}, {"reasons", settings.reasons}, {"conf_variable", variable},
                            {"confs", confs});
}

static VALUE others_list(VALUE reasons) {
    const struct memscope_other_allocator *others;
    size_t count = memscope_allocator_others(&others);
    VALUE list = rb_ary_new_capa((long)count);

    for (size_t index = 0; index < count; index++)
        rb_ary_push(
            list, memscope_hash_of({"name", memscope_symbol(memscope_allocator_name_text(others[index].name))},
                                   {"version", memscope_text_or_nil(others[index].version)},
                                   {"path", rb_utf8_str_new_cstr(others[index].path)},
                                   {"prefix", rb_utf8_str_new_cstr(others[index].prefix)},
                                   {"allocated_bytes", memscope_number_or_nil(others[index].allocated_bytes)},
                                   {"reason", rb_utf8_str_new_cstr(memscope_other_allocator_reason(&others[index]))}));
    if (count == MEMSCOPE_OTHER_ALLOCATORS)
        memscope_set_reason_of(reasons, "others", "others_truncated", INT2FIX(MEMSCOPE_OTHER_ALLOCATORS));
    return list;
}

/* Memscope::Native.allocator */
VALUE native_allocator(VALUE self) {
    uint64_t began = memscope_now_ns();
    const struct memscope_allocator *allocator = memscope_allocator_current();
    VALUE reasons = rb_hash_new(), proof = rb_utf8_str_new_cstr(allocator->proof), hash;

    hash = memscope_hash_of(
        {"name", memscope_symbol(memscope_allocator_name_text(allocator->name))},
        {"version", memscope_text_or_nil(allocator->version)}, {"path", memscope_text_or_nil(allocator->path)},
        {"proved", allocator->proved ? Qtrue : Qfalse}, {"proof", proof}, {"others", others_list(reasons)});
    if (!allocator->proved)
        memscope_hash_set(reasons, "name", proof);
    if (allocator->version[0] == '\0')
        memscope_set_reason(reasons, "version", allocator->proved ? "version_unknown" : "allocator_unknown");
    if (allocator->path[0] == '\0')
        memscope_set_reason(reasons, "path", "object_unknown");
    return memscope_finish(hash, reasons, "T0", began, 0, 0);
}

/* Name and value come from one environment entry, NAME=value, which may have any bytes. A Symbol may not. */
static void add_variable(const char *name, const char *value, void *hash) {
    VALUE text = rb_utf8_str_new(name, (long)(value - name - 1)), scrubbed = rb_str_scrub(text, Qnil);

    rb_hash_aset((VALUE)hash, rb_to_symbol(NIL_P(scrubbed) ? text : scrubbed), rb_utf8_str_new_cstr(value));
}

static void add_current(const struct memscope_setting *setting, void *hash) {
    rb_hash_aset((VALUE)hash, rb_to_symbol(memscope_text_value(setting->name)), setting_value(setting));
}

/* note_caller must not allocate, so it copies the paths here first. */
struct callers {
    size_t count;
    char paths[16][MEMSCOPE_ALLOCATOR_PATH];
};

static void note_caller(const char *path, void *context) {
    struct callers *callers = context;

    if (callers->count < sizeof callers->paths / sizeof callers->paths[0])
        snprintf(callers->paths[callers->count++], sizeof callers->paths[0], "%s", path);
}

/* Each call overwrites the static struct. The GVL serializes calls. */
static VALUE mallopt_callers(void) {
    static struct callers callers;
    VALUE list = rb_ary_new();

    callers.count = 0;
    memscope_allocator_mallopt_callers(note_caller, &callers);
    for (size_t index = 0; index < callers.count; index++)
        rb_ary_push(list, rb_utf8_str_new_cstr(callers.paths[index]));
    return list;
}

/* Memscope::Native.allocator_inputs: the environment's variables, and the settings that change at run time. */
VALUE native_allocator_inputs(VALUE self) {
    VALUE variables = rb_hash_new(), current = rb_hash_new();

    memscope_allocator_environment_given(add_variable, (void *)variables);
    memscope_allocator_current_settings(add_current, (void *)current);
    return memscope_hash_of({"variables", variables},
                            {"secure", memscope_allocator_environment_is_ignored() ? Qtrue : Qfalse},
                            {"current", current}, {"mallopt_callers", mallopt_callers()});
}

/* Native.environment_at_load(name) -> String or nil: a captured variable as it was before ENV could change it. */
VALUE native_environment_at_load(VALUE self, VALUE name) {
    return memscope_text_or_nil(memscope_allocator_environment(StringValueCStr(name)));
}

void Init_memscope_allocator(void) {
    memscope_allocator_load();
}
