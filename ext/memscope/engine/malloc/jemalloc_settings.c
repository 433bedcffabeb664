#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "malloc/allocator_settings.h"

#include "malloc/allocator_environment.h"
#include "malloc/jemalloc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Both as src/jemalloc.c of 5.3.0 has them: PATH_MAX for the link, and any name of an option is shorter than this. */
#define LINK_SIZE 4096
#define KEY_SIZE 96

#define NOT_TAKEN "jemalloc did not take it: invalid, out of range or not possible here"
#define MALFORMED "malformed: jemalloc stops reading here"

enum { COMPILED, PROGRAM, LINK, ENVIRONMENT, HARDER, CONF_COUNT };

/* A text of options, in the order in which jemalloc reads them: a later one wins. */
struct conf {
    const char *source;
    const char *text; /* NULL: not given */
};

struct confs {
    struct conf list[CONF_COUNT];
    const char *variable;
    char link_path[64], link[LINK_SIZE];
};

typedef const char *string;

#define KIND_bool MEMSCOPE_SETTING_BOOLEAN
#define KIND_unsigned MEMSCOPE_SETTING_UNSIGNED
#define KIND_size_t MEMSCOPE_SETTING_UNSIGNED
#define KIND_uint64_t MEMSCOPE_SETTING_UNSIGNED
#define KIND_ssize_t MEMSCOPE_SETTING_SIGNED
#define KIND_int64_t MEMSCOPE_SETTING_SIGNED
#define KIND_string MEMSCOPE_SETTING_TEXT

struct option {
    const char *name;
    enum memscope_setting_type type;
    size_t size;
};

#define OPTION(name, type) {#name, KIND_##type, sizeof(type)},
static const struct option options[] = {
#include "malloc/jemalloc_options.def"
};
#undef OPTION

/* Options that jemalloc takes from the texts and does not report (src/jemalloc.c, 5.1.0 to 5.3.1). */
static const char *const unreported[] = {
    "bin_shards",
    "slab_sizes",
    "narenas_ratio",
    "hpa_dirty_mult",
    "hpa_hugification_threshold_ratio",
    "lg_tcache_max",
    "prof_log",
    "prof_unbias",
    "log",
    "san_guard_small",
    "san_guard_large",
};

/*
 * jemalloc 5.3.1 reports the texts that it read. Of these its copies are taken; opt.malloc_conf.env_var is none, but a
 * pointer into the environment, where a process title may stand by now.
 */
static void prefer_reported(const char *key, struct conf *conf) {
    const char *reported;

    if (memscope_jemalloc_read(key, &reported, sizeof reported) == MEMSCOPE_OK)
        conf->text = reported;
}

static void find_confs(struct confs *confs) {
    const char *prefix = memscope_jemalloc_prefix();
    ssize_t length;

    snprintf(confs->link_path, sizeof confs->link_path, "/etc/%smalloc.conf", prefix);
    confs->variable = prefix[0] == '\0' ? "MALLOC_CONF" : "JE_MALLOC_CONF";
    length = readlink(confs->link_path, confs->link, sizeof confs->link - 1);
    confs->link[length > 0 ? length : 0] = '\0';
    confs->list[COMPILED] = (struct conf){"--with-malloc-conf", NULL};
    confs->list[PROGRAM] = (struct conf){"malloc_conf", memscope_jemalloc_program_conf()};
    confs->list[LINK] = (struct conf){confs->link_path, length > 0 ? confs->link : NULL};
    confs->list[ENVIRONMENT] = (struct conf){confs->variable, memscope_allocator_environment(confs->variable)};
    confs->list[HARDER] = (struct conf){"malloc_conf_2_conf_harder", NULL};
    prefer_reported("config.malloc_conf", &confs->list[COMPILED]);
    prefer_reported("opt.malloc_conf.symlink", &confs->list[LINK]);
    prefer_reported("opt.malloc_conf.global_var_2_conf_harder", &confs->list[HARDER]);
}

/*
 * Takes the next "key:value" from *cursor. False at the end of the text, and where jemalloc stops since a key is
 * followed by anything but a colon; then *cursor stays at that key.
 */
static bool next_option(const char **cursor, struct memscope_text *key, struct memscope_text *value) {
    const char *key_end = *cursor + strspn(*cursor, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    const char *value_end;

    if (*key_end != ':')
        return false;
    value_end = key_end + 1 + strcspn(key_end + 1, ",");
    *key = (struct memscope_text){*cursor, (size_t)(key_end - *cursor)};
    *value = (struct memscope_text){key_end + 1, (size_t)(value_end - key_end - 1)};
    *cursor = *value_end == ',' ? value_end + 1 : value_end;
    return true;
}

/* The last value that conf gives to an option. */
static bool find_in_conf(const char *conf, const char *name, struct memscope_text *found) {
    struct memscope_text key, value;
    bool any = false;

    while (conf && next_option(&conf, &key, &value)) {
        if (memscope_text_is(key, name)) {
            *found = value;
            any = true;
        }
    }
    return any;
}

/* Reads a value under its key. False where this jemalloc has no such key. */
static bool read_value(const char *key, const struct option *option, struct memscope_setting *setting) {
    union {
        bool boolean;
        uint32_t four;
        uint64_t eight;
        const char *string;
    } raw;

    if (memscope_jemalloc_read(key, &raw, option->size) != MEMSCOPE_OK)
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

/* Reads the effective value. False where this jemalloc has no such option. */
static bool read_option(const struct option *option, struct memscope_setting *setting) {
    char key[KEY_SIZE];

    snprintf(key, sizeof key, "opt.%s", option->name);
    return read_value(key, option, setting);
}

/* Whether a text, read as jemalloc reads it (numbers in any C base, and all of the text), means the effective value. */
static bool means(struct memscope_text given, const struct memscope_setting *setting) {
    char number[KEY_SIZE], *end;

    if (setting->type == MEMSCOPE_SETTING_BOOLEAN)
        return memscope_text_is(given, setting->value.boolean ? "true" : "false");
    if (setting->type == MEMSCOPE_SETTING_TEXT)
        return memscope_text_is(given, setting->value.text);
    if (given.length == 0 || given.length >= sizeof number)
        return false;
    memcpy(number, given.start, given.length);
    number[given.length] = '\0';
    errno = 0;
    if (setting->type == MEMSCOPE_SETTING_UNSIGNED)
        return strtoumax(number, &end, 0) == setting->value.number && *end == '\0' && errno == 0;
    return strtoimax(number, &end, 0) == setting->value.signed_number && *end == '\0' && errno == 0;
}

/*
 * The last conf that gives the effective value is its source; the last that names the option is what was given.
 * Of narenas alone jemalloc takes the word "default".
 */
static void attribute(const struct confs *confs, struct memscope_setting *setting, const char *name) {
    struct memscope_text given;

    setting->source = "default";
    for (size_t index = 0; index < CONF_COUNT; index++) {
        if (!find_in_conf(confs->list[index].text, name, &given))
            continue;
        setting->given = given;
        setting->ignored = NULL;
        if (means(given, setting))
            setting->source = confs->list[index].source;
        else if (strcmp(name, "narenas") != 0 || !memscope_text_is(given, "default"))
            setting->ignored = NOT_TAKEN;
    }
}

/* 5.3.0 turned the option lg_tcache_max into tcache_max, and still takes the old one for it. */
static void attribute_to_lg_tcache_max(const struct confs *confs, struct memscope_setting *setting) {
    struct memscope_setting logarithm = {.type = MEMSCOPE_SETTING_SIGNED};

    if (setting->value.number == 0)
        return;
    logarithm.value.signed_number = __builtin_ctzll(setting->value.number);
    attribute(confs, &logarithm, "lg_tcache_max");
    if (UINT64_C(1) << logarithm.value.signed_number != setting->value.number || logarithm.ignored)
        return;
    setting->source = logarithm.source;
    setting->given = logarithm.given;
}

static bool is_reported(struct memscope_text name) {
    struct memscope_setting setting;

    for (size_t index = 0; index < sizeof options / sizeof options[0]; index++) {
        if (memscope_text_is(name, options[index].name))
            return read_option(&options[index], &setting);
    }
    return false;
}

static bool is_unreported(struct memscope_text name) {
    for (size_t index = 0; index < sizeof unreported / sizeof unreported[0]; index++) {
        if (memscope_text_is(name, unreported[index]))
            return true;
    }
    return false;
}

/* What a conf names and jemalloc does not report, and the place where jemalloc stops reading it. */
static void visit_unreported(const struct conf *conf, memscope_setting_visitor visit, void *context) {
    const char *cursor = conf->text;
    struct memscope_text key, value;

    while (cursor && next_option(&cursor, &key, &value)) {
        struct memscope_setting setting = {.name = key, .source = conf->source, .given = value};

        if (is_reported(key))
            continue;
        if (is_unreported(key))
            setting.reason = "jemalloc takes this option and does not report its value";
        else
            setting.ignored = "this jemalloc has no option of this name";
        visit(&setting, context);
    }
    if (cursor && *cursor) {
        struct memscope_setting setting = {.name = memscope_text_of(cursor),
                                           .source = conf->source,
                                           .given = memscope_text_of(cursor),
                                           .ignored = MALFORMED};

        visit(&setting, context);
    }
}

const char *memscope_jemalloc_settings(memscope_setting_visitor visit, void *context) {
    struct confs confs = {0};

    find_confs(&confs);
    for (size_t index = 0; index < sizeof options / sizeof options[0]; index++) {
        struct memscope_setting setting = {.name = memscope_text_of(options[index].name)};

        if (!read_option(&options[index], &setting))
            continue;
        attribute(&confs, &setting, options[index].name);
        if (!setting.given.start && strcmp(options[index].name, "tcache_max") == 0)
            attribute_to_lg_tcache_max(&confs, &setting);
        visit(&setting, context);
    }
    for (size_t index = 0; index < CONF_COUNT; index++)
        visit_unreported(&confs.list[index], visit, context);
    return NULL;
}

void memscope_jemalloc_current_settings(memscope_setting_visitor visit, void *context) {
    static const struct {
        const char *key;
        struct option option;
    } current[] = {
        {"background_thread", {"background_thread", MEMSCOPE_SETTING_BOOLEAN, sizeof(bool)}},
        {"max_background_threads", {"max_background_threads", MEMSCOPE_SETTING_UNSIGNED, sizeof(size_t)}},
        {"arena.0.dirty_decay_ms", {"dirty_decay_ms", MEMSCOPE_SETTING_SIGNED, sizeof(ssize_t)}},
        {"arena.0.muzzy_decay_ms", {"muzzy_decay_ms", MEMSCOPE_SETTING_SIGNED, sizeof(ssize_t)}},
    };

    for (size_t index = 0; index < sizeof current / sizeof current[0]; index++) {
        struct memscope_setting setting = {.name = memscope_text_of(current[index].option.name), .source = "mallctl"};

        if (read_value(current[index].key, &current[index].option, &setting))
            visit(&setting, context);
    }
}

const char *memscope_jemalloc_confs(memscope_conf_visitor visit, void *context) {
    struct confs confs = {0};

    find_confs(&confs);
    for (size_t index = 0; index < CONF_COUNT; index++)
        visit(confs.list[index].source, confs.list[index].text, context);
    return confs.variable;
}
