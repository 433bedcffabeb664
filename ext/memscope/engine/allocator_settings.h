/*
 * The settings of each allocator, behind memscope_allocator_settings of allocator.h: effective values where the
 * allocator tells them, else what its own rules make of the environment.
 */
#ifndef MEMSCOPE_ALLOCATOR_SETTINGS_H
#define MEMSCOPE_ALLOCATOR_SETTINGS_H

#include "allocator.h"

/* Each visits all settings and returns what holds for all of them, or NULL; as memscope_allocator_settings. */
const char *memscope_jemalloc_settings(memscope_setting_visitor visit, void *context);
const char *memscope_glibc_settings(memscope_setting_visitor visit, void *context);

/* memscope_allocator_current_settings and memscope_allocator_confs for jemalloc. */
void memscope_jemalloc_current_settings(memscope_setting_visitor visit, void *context);
const char *memscope_jemalloc_confs(memscope_conf_visitor visit, void *context);

/* The text of a NUL-terminated string; none for NULL. */
static inline struct memscope_text memscope_text_of(const char *string) {
    struct memscope_text text = {string, 0};

    while (string && string[text.length])
        text.length++;
    return text;
}

/* Whether the text is exactly this string. */
static inline bool memscope_text_is(struct memscope_text text, const char *string) {
    size_t index = 0;

    while (index < text.length && string[index] && text.start[index] == string[index])
        index++;
    return index == text.length && string[index] == '\0';
}

#endif
