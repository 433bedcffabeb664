#include "malloc/allocator_settings.h"

#include "elf/shared_objects.h"
#include "malloc/allocator_environment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct environment_visit {
    size_t prefix_length;
    void (*set_value)(struct memscope_setting *setting, const char *value);
    memscope_setting_visitor visit;
    void *context;
};

static void set_text_value(struct memscope_setting *setting, const char *value) {
    setting->type = MEMSCOPE_SETTING_TEXT;
    setting->value.text = value;
}

/*
 * Reads a value as mimalloc does (src/options.c, 2.0.9 to 3.0): a word for yes or no, or a decimal number. Sizes may
 * end in K, M or G, with or without B or iB. They stay text here, since only mimalloc can identify the options that are
 * sizes.
 */
static void set_mimalloc_value(struct memscope_setting *setting, const char *value) {
    static const struct {
        const char *word;
        int64_t value;
    } words[] = {{"", 1}, {"TRUE", 1}, {"YES", 1}, {"ON", 1}, {"FALSE", 0}, {"NO", 0}, {"OFF", 0}};
    char *end;

    setting->type = MEMSCOPE_SETTING_SIGNED;
    for (size_t index = 0; index < sizeof words / sizeof words[0]; index++) {
        if (strcasecmp(value, words[index].word) == 0) {
            setting->value.signed_number = words[index].value;
            return;
        }
    }
    setting->value.signed_number = strtol(value, &end, 10);
    if (end != value && *end == '\0')
        return;
    if (end != value && strchr("KMGkmg", *end) &&
        (end[1] == '\0' || strcasecmp(end + 1, "B") == 0 || strcasecmp(end + 1, "IB") == 0)) {
        set_text_value(setting, value);
        return;
    }
    setting->type = MEMSCOPE_SETTING_NOT_KNOWN;
    setting->source = "default";
    setting->ignored = "neither a number nor a word for yes or no: mimalloc keeps its default";
}

/* The option's name is the variable's name in lower case, without the prefix. */
static void visit_variable(const char *name, const char *value, void *context) {
    const struct environment_visit *visit = context;
    size_t length = strcspn(name, "=");
    char variable[128], option[128];
    struct memscope_setting setting = {.source = variable, .given = memscope_text_of(value)};

    if (length <= visit->prefix_length || length >= sizeof variable)
        return;
    memcpy(variable, name, length);
    variable[length] = '\0';
    for (size_t index = visit->prefix_length; index <= length; index++)
        option[index - visit->prefix_length] = (char)tolower((unsigned char)variable[index]);
    setting.name = (struct memscope_text){option, length - visit->prefix_length};
    visit->set_value(&setting, value);
    visit->visit(&setting, visit->context);
}

static const char *visit_mimalloc(memscope_setting_visitor visit, void *context) {
    struct environment_visit options = {strlen("MIMALLOC_"), set_mimalloc_value, visit, context};

    memscope_allocator_environment_each("MIMALLOC_", visit_variable, &options);
    memscope_allocator_environment_each("mimalloc_", visit_variable, &options);
    return "mimalloc does not report its options by name: these are the environment's";
}

static const char *visit_tcmalloc(memscope_setting_visitor visit, void *context) {
    struct environment_visit options = {strlen("TCMALLOC_"), set_text_value, visit, context};

    memscope_allocator_environment_each("TCMALLOC_", visit_variable, &options);
    return "tcmalloc does not report which values it took: these are the environment's";
}

const char *memscope_allocator_settings(memscope_setting_visitor visit, void *context) {
    switch (memscope_allocator_current()->name) {
    case MEMSCOPE_ALLOCATOR_JEMALLOC:
        memscope_jemalloc_settings(visit, context);
        return NULL;
    case MEMSCOPE_ALLOCATOR_GLIBC:
        return memscope_glibc_settings(visit, context);
    case MEMSCOPE_ALLOCATOR_MIMALLOC:
        return visit_mimalloc(visit, context);
    case MEMSCOPE_ALLOCATOR_TCMALLOC:
        return visit_tcmalloc(visit, context);
    case MEMSCOPE_ALLOCATOR_MUSL:
        return "musl's malloc has no settings";
    case MEMSCOPE_ALLOCATOR_UNKNOWN:
        break;
    }
    return "the allocator is not known, so neither are its settings";
}

void memscope_allocator_current_settings(memscope_setting_visitor visit, void *context) {
    if (memscope_allocator_current()->name == MEMSCOPE_ALLOCATOR_JEMALLOC)
        memscope_jemalloc_current_settings(visit, context);
}

const char *memscope_allocator_confs(memscope_conf_visitor visit, void *context) {
    if (memscope_allocator_current()->name != MEMSCOPE_ALLOCATOR_JEMALLOC)
        return NULL;
    return memscope_jemalloc_confs(visit, context);
}

struct callers_visit {
    memscope_path_visitor visit;
    void *context;
};

static bool visit_if_caller(const struct memscope_shared_object *object, void *context) {
    const struct callers_visit *callers = context;

    if (memscope_shared_object_imports(object, "mallopt"))
        callers->visit(object->path, callers->context);
    return true;
}

void memscope_allocator_mallopt_callers(memscope_path_visitor visit, void *context) {
    struct callers_visit callers = {visit, context};

    memscope_each_shared_object(visit_if_caller, &callers);
}
