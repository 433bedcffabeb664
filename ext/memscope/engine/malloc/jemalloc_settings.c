#include "malloc/allocator_settings.h"

#include "malloc/allocator_environment.h"
#include "malloc/jemalloc_keys.h"

#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

/* PATH_MAX, which bounds the link in src/jemalloc.c of 5.3.0. */
#define LINK_SIZE 4096

typedef const char *string;

#define KIND_bool MEMSCOPE_SETTING_BOOLEAN
#define KIND_unsigned MEMSCOPE_SETTING_UNSIGNED
#define KIND_size_t MEMSCOPE_SETTING_UNSIGNED
#define KIND_uint64_t MEMSCOPE_SETTING_UNSIGNED
#define KIND_ssize_t MEMSCOPE_SETTING_SIGNED
#define KIND_int64_t MEMSCOPE_SETTING_SIGNED
#define KIND_string MEMSCOPE_SETTING_TEXT

struct option {
    const char *key;
    const char *name;
    enum memscope_setting_type type;
    size_t size;
};

#define OPTION(name, type) {"opt." #name, #name, KIND_##type, sizeof(type)},
static const struct option options[] = {
#include "malloc/jemalloc_options.def"
};

/* The options that a program can change at run time. Each arena has its own decay times, and these are arena 0's. */
static const struct option current[] = {
    {"background_thread", "background_thread", KIND_bool, sizeof(bool)},
    {"max_background_threads", "max_background_threads", KIND_size_t, sizeof(size_t)},
    {"arena.0.dirty_decay_ms", "dirty_decay_ms", KIND_ssize_t, sizeof(ssize_t)},
    {"arena.0.muzzy_decay_ms", "muzzy_decay_ms", KIND_ssize_t, sizeof(ssize_t)},
};

/* Returns false if this jemalloc lacks the key. */
static bool read_value(const struct option *option, struct memscope_setting *setting) {
    union {
        bool boolean;
        uint32_t four;
        uint64_t eight;
        const char *string;
    } raw;

    if (memscope_jemalloc_read(option->key, &raw, option->size) != MEMSCOPE_OK)
        return false;
    setting->type = option->type;
    if (option->type == MEMSCOPE_SETTING_BOOLEAN)
        setting->value.boolean = raw.boolean;
    else if (option->type == MEMSCOPE_SETTING_UNSIGNED)
        setting->value.number = option->size == sizeof raw.four ? raw.four : raw.eight;
    else if (option->type == MEMSCOPE_SETTING_SIGNED)
        setting->value.signed_number = option->size == sizeof raw.four ? (int32_t)raw.four : (int64_t)raw.eight;
    else
        setting->value.text = raw.string ? raw.string : "";
    return true;
}

static void visit_options(const struct option *table, size_t count, memscope_setting_visitor visit, void *context) {
    for (size_t index = 0; index < count; index++) {
        struct memscope_setting setting = {.name = memscope_text_of(table[index].name), .source = "default"};

        if (read_value(&table[index], &setting))
            visit(&setting, context);
    }
}

void memscope_jemalloc_settings(memscope_setting_visitor visit, void *context) {
    visit_options(options, sizeof options / sizeof options[0], visit, context);
}

void memscope_jemalloc_current_settings(memscope_setting_visitor visit, void *context) {
    visit_options(current, sizeof current / sizeof current[0], visit, context);
}

/* The text that jemalloc reports (5.3.1 does, from a copy that it made when it read the text), else the given text. */
static const char *reported_or(const char *key, const char *text) {
    const char *reported;

    return memscope_jemalloc_read(key, &reported, sizeof reported) == MEMSCOPE_OK ? reported : text;
}

/*
 * Does not read opt.malloc_conf.env_var, which is not a copy but a pointer into the environment, which a process title
 * can overwrite.
 */
const char *memscope_jemalloc_confs(memscope_conf_visitor visit, void *context) {
    struct memscope_jemalloc_binding jemalloc = memscope_jemalloc_binding();
    const char *variable = jemalloc.prefix[0] == '\0' ? "MALLOC_CONF" : "JE_MALLOC_CONF";
    char path[64], link[LINK_SIZE];
    ssize_t length;

    snprintf(path, sizeof path, "/etc/%smalloc.conf", jemalloc.prefix);
    length = readlink(path, link, sizeof link - 1);
    link[length > 0 ? length : 0] = '\0';
    visit("--with-malloc-conf", reported_or("config.malloc_conf", NULL), context);
    visit("malloc_conf", jemalloc.conf ? *jemalloc.conf : NULL, context);
    visit(path, reported_or("opt.malloc_conf.symlink", length > 0 ? link : NULL), context);
    visit(variable, memscope_allocator_environment(variable), context);
    visit("malloc_conf_2_conf_harder", reported_or("opt.malloc_conf.global_var_2_conf_harder", NULL), context);
    return variable;
}
