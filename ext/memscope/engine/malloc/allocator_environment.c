#include "malloc/allocator_environment.h"

#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/*
 * Parts of variables' names, in upper or lower case. Names that begin with RUBY_ do not count, since
 * RUBY_GC_MALLOC_LIMIT and similar variables do not belong to an allocator. LD_PRELOAD may name an allocator.
 */
static const char *const parts_of_names[] = {"MALLOC", "TUNABLE", "ARENA_MAX", "ARENA_TEST", "LD_PRELOAD"};

static bool is_about_an_allocator(const char *entry) {
    char name[128];
    const char *end = strchr(entry, '='); /* strcspn would make another 40 KiB of glibc resident */
    size_t length = end ? (size_t)(end - entry) : sizeof name;

    if (length >= sizeof name || strncmp(entry, "RUBY_", 5) == 0)
        return false;
    memcpy(name, entry, length);
    name[length] = '\0';
    for (size_t part = 0; part < sizeof parts_of_names / sizeof parts_of_names[0]; part++)
        if (strcasestr(name, parts_of_names[part]))
            return true;
    return false;
}

/* Entries "NAME=value", each ended by a NUL, then zeros. Written once, without entries that do not fit. */
static char captured[16384];
static bool ignored;

void memscope_allocator_environment_capture(void) {
    size_t used = 0;

    ignored = getauxval(AT_SECURE) != 0;
    for (char **entry = environ; entry && *entry; entry++) {
        size_t size = strlen(*entry) + 1;

        if (!is_about_an_allocator(*entry) || size >= sizeof captured - used)
            continue;
        memcpy(captured + used, *entry, size);
        used += size;
    }
}

bool memscope_allocator_environment_is_ignored(void) {
    return ignored;
}

const char *memscope_allocator_environment(const char *name) {
    size_t length = strlen(name);

    for (const char *entry = captured; *entry && !ignored; entry += strlen(entry) + 1)
        if (strncmp(entry, name, length) == 0 && entry[length] == '=')
            return entry + length + 1;
    return NULL;
}

void memscope_allocator_environment_given(memscope_environment_visitor visit, void *context) {
    for (const char *entry = captured; *entry; entry += strlen(entry) + 1)
        visit(entry, strchr(entry, '=') + 1, context);
}
