#include "malloc/allocator_settings.h"

#include "malloc/allocator_environment.h"

#include <stdlib.h>
#include <string.h>

#define NAMESPACE "glibc.malloc."

/* malloc/malloc.c: TCACHE_MAX_BINS (2.26), TCACHE_SMALL_BINS (2.42). MAX_CACHED is tidx2usize of the last bin. */
#define CACHED_SIZES ((size_t)64)
#define MAX_CACHED (CACHED_SIZES * 2 * sizeof(size_t) + sizeof(size_t))

struct tunable {
    const char *name;
    const char *alias;
    uint64_t minimum, maximum;
    enum memscope_setting_type type;
    uint64_t value;
    const char *rule;
};

#define TUNABLE(name, alias, minimum, maximum, type, value, rule)                                                      \
    {#name, alias, minimum, maximum, MEMSCOPE_SETTING_##type, value, rule},
static const struct tunable tunables[] = {
#include "malloc/glibc_tunables.def"
};

enum { TUNABLE_COUNT = sizeof tunables / sizeof tunables[0] };

/* If set, each of these stops glibc from moving its mmap and trim thresholds (malloc/malloc.c, no_dyn_threshold). */
static const char *const fixing_thresholds[] = {"mmap_threshold", "trim_threshold", "mmap_max", "top_pad"};

static bool is_since(unsigned long minor) {
    const char *cursor = memscope_allocator_current()->version;
    char *end;
    unsigned long major = strtoul(cursor, &end, 10), given = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

    return major > 2 || (major == 2 && given >= minor);
}

/*
 * From 2.39 on, the whole value must be a number, and a malformed GLIBC_TUNABLES is ignored as a whole. Before 2.39,
 * the rest after the digits is ignored, and a value without digits is 0 (elf/dl-tunables.c).
 */
static bool is_strict(void) {
    return is_since(39);
}

/* In older versions, two maximums are lower (HEAP_MAX_SIZE / 2 on 64-bit, and MAX_TCACHE_SIZE), and one is missing. */
static uint64_t maximum_of(const struct tunable *tunable) {
    if (strcmp(tunable->name, "tcache_count") == 0 && !is_since(30))
        return SIZE_MAX;
    if (strcmp(tunable->name, "mmap_threshold") == 0 && !is_since(35))
        return UINT64_C(32) << 20;
    if (strcmp(tunable->name, "tcache_max") == 0 && !is_since(42))
        return MAX_CACHED;
    return tunable->maximum;
}

static const char *parse(const struct tunable *tunable, struct memscope_text given, uint64_t *value) {
    char number[64], *end;

    if (given.length >= sizeof number)
        return "too long for a number";
    memcpy(number, given.start, given.length);
    number[given.length] = '\0';
    *value = strtoull(number, &end, 0);
    if (is_strict() && (end == number || *end != '\0'))
        return "not a number";
    if (*value < tunable->minimum || *value > maximum_of(tunable))
        return end == number ? "not a number" : "out of range";
    return NULL;
}

/* Takes the next "name=value" of a GLIBC_TUNABLES text. Skips parts without '=', as glibc does. */
static bool next_tunable(const char **cursor, struct memscope_text *name, struct memscope_text *value) {
    while (**cursor) {
        const char *start = *cursor, *name_end = start + strcspn(start, "=:");

        if (*name_end == '=') {
            const char *value_end = name_end + 1 + strcspn(name_end + 1, ":");

            *name = (struct memscope_text){start, (size_t)(name_end - start)};
            *value = (struct memscope_text){name_end + 1, (size_t)(value_end - name_end - 1)};
            *cursor = *value_end ? value_end + 1 : value_end;
            return true;
        }
        *cursor = *name_end ? name_end + 1 : name_end;
    }
    return false;
}

/* GLIBC_TUNABLES, or NULL if glibc ignores it: from 2.39 on, if its last part has no '=' or a value contains one. */
static const char *accepted_tunables(void) {
    const char *text = memscope_allocator_environment("GLIBC_TUNABLES"), *cursor = text, *last_part;
    struct memscope_text name, value;

    if (!text || !is_strict())
        return text;
    while (next_tunable(&cursor, &name, &value))
        if (memchr(value.start, '=', value.length))
            return NULL;
    last_part = strrchr(text, ':');
    return strchr(last_part ? last_part : text, '=') ? text : NULL;
}

/* The part of a tunable's name after "glibc.malloc.", empty if the name begins otherwise. */
static struct memscope_text malloc_name(struct memscope_text name) {
    size_t length = strlen(NAMESPACE);

    if (name.length < length || strncmp(name.start, NAMESPACE, length) != 0)
        return (struct memscope_text){NULL, 0};
    return (struct memscope_text){name.start + length, name.length - length};
}

static void take(const struct tunable *tunable, struct memscope_text given, const char *source,
                 struct memscope_setting *setting) {
    uint64_t value;

    setting->given = given;
    setting->ignored = parse(tunable, given, &value);
    if (setting->ignored)
        return;
    setting->type = MEMSCOPE_SETTING_UNSIGNED;
    setting->value.number = value;
    setting->source = source;
    setting->reason = NULL;
}

/* Reads the alias first, then GLIBC_TUNABLES, which wins whatever the order of the two in the environment. */
static void read_tunable(const struct tunable *tunable, struct memscope_setting *setting) {
    const char *alias = tunable->alias ? memscope_allocator_environment(tunable->alias) : NULL;
    const char *cursor = accepted_tunables();
    struct memscope_text name, value;

    *setting = (struct memscope_setting){.name = memscope_text_of(tunable->name),
                                         .type = tunable->type,
                                         .value.number = tunable->value,
                                         .source = "default",
                                         .reason = tunable->rule};
    if (alias)
        take(tunable, memscope_text_of(alias), tunable->alias, setting);
    while (cursor && next_tunable(&cursor, &name, &value)) {
        name = malloc_name(name);
        if (name.start && memscope_text_is(name, tunable->name))
            take(tunable, value, "GLIBC_TUNABLES", setting);
    }
}

static const struct tunable *find_tunable(struct memscope_text name) {
    for (size_t index = 0; index < TUNABLE_COUNT; index++)
        if (memscope_text_is(name, tunables[index].name))
            return &tunables[index];
    return NULL;
}

static struct memscope_setting *setting_of(struct memscope_setting *settings, const char *name) {
    return &settings[find_tunable(memscope_text_of(name)) - tunables];
}

static bool thresholds_are_fixed(struct memscope_setting *settings) {
    for (size_t index = 0; index < sizeof fixing_thresholds / sizeof fixing_thresholds[0]; index++)
        if (strcmp(setting_of(settings, fixing_thresholds[index])->source, "default") != 0)
            return true;
    return false;
}

/* Marks the initial value of a threshold as known, once glibc no longer adjusts it. */
static void fix_threshold(struct memscope_setting *threshold) {
    if (threshold->type != MEMSCOPE_SETTING_NOT_KNOWN)
        return;
    threshold->type = MEMSCOPE_SETTING_UNSIGNED;
    threshold->reason = NULL;
}

static void visit_unknown_tunables(memscope_setting_visitor visit, void *context) {
    const char *cursor = accepted_tunables();
    struct memscope_text name, value;

    while (cursor && next_tunable(&cursor, &name, &value)) {
        struct memscope_setting setting = {.name = malloc_name(name),
                                           .source = "GLIBC_TUNABLES",
                                           .given = value,
                                           .ignored = "glibc's malloc has no tunable of this name"};

        if (setting.name.start && !find_tunable(setting.name))
            visit(&setting, context);
    }
}

const char *memscope_glibc_settings(memscope_setting_visitor visit, void *context) {
    struct memscope_setting settings[TUNABLE_COUNT];

    for (size_t index = 0; index < TUNABLE_COUNT; index++)
        read_tunable(&tunables[index], &settings[index]);
    if (thresholds_are_fixed(settings)) {
        fix_threshold(setting_of(settings, "mmap_threshold"));
        fix_threshold(setting_of(settings, "trim_threshold"));
    }
    for (size_t index = 0; index < TUNABLE_COUNT; index++)
        visit(&settings[index], context);
    visit_unknown_tunables(visit, context);
    return "glibc's malloc does not report its settings: these are derived from the environment by glibc's rules, "
           "and changes made with mallopt are not visible";
}

/* ---- the thread caches ----------------------------------------------------------------------------------------- */

/* The default: 16 from 2.43 on. Treats 2.42 as 2.43, since snapshots before 2.43 report 2.42.9000. */
static uint64_t cached_of_each_size(void) {
    return is_since(42) ? 16 : 7;
}

/* The tunable's value, or `otherwise` if the value is unknown. */
static uint64_t value_of(const char *name, uint64_t otherwise) {
    struct memscope_setting setting;

    read_tunable(find_tunable(memscope_text_of(name)), &setting);
    return setting.type == MEMSCOPE_SETTING_UNSIGNED ? setting.value.number : otherwise;
}

/* Before 2.30, the counters, which are chars, may overflow. Since 2.42, tcache_max may admit larger chunks. */
uint64_t memscope_glibc_cache_slots(void) {
    uint64_t count = value_of("tcache_count", cached_of_each_size());

    if ((count > INT8_MAX && !is_since(30)) || (is_since(42) && value_of("tcache_max", 0) > MAX_CACHED))
        return UINT64_MAX;
    return count * CACHED_SIZES;
}
