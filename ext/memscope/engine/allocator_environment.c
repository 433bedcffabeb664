#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* environ */
#endif
#include "allocator_environment.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__

#include <sys/auxv.h>

static const char *const prefixes[] = {
    "MALLOC_", "GLIBC_TUNABLES=", "JE_MALLOC_CONF=", "MIMALLOC_", "mimalloc_", "TCMALLOC_",
};

static bool is_of_an_allocator(const char *entry) {
    for (size_t prefix = 0; prefix < sizeof prefixes / sizeof prefixes[0]; prefix++) {
        if (strncmp(entry, prefixes[prefix], strlen(prefixes[prefix])) == 0)
            return strchr(entry, '=') != NULL;
    }
    return false;
}

#endif

/* "NAME=value", a NUL after each, an empty one at the end. What does not fit is left out. */
static char captured[16384];

void memscope_allocator_environment_capture(void) {
#ifdef __linux__
    size_t used = 0;

    if (getauxval(AT_SECURE))
        return;
    for (char **entry = environ; entry && *entry; entry++) {
        size_t size = strlen(*entry) + 1;

        if (!is_of_an_allocator(*entry) || size >= sizeof captured - used)
            continue;
        memcpy(captured + used, *entry, size);
        used += size;
    }
    captured[used] = '\0';
#endif
}

const char *memscope_allocator_environment(const char *name) {
    size_t length = strlen(name);

    for (const char *entry = captured; *entry; entry += strlen(entry) + 1) {
        if (strncmp(entry, name, length) == 0 && entry[length] == '=')
            return entry + length + 1;
    }
    return NULL;
}

void memscope_allocator_environment_each(const char *prefix, memscope_environment_visitor visit, void *context) {
    for (const char *entry = captured; *entry; entry += strlen(entry) + 1) {
        if (strncmp(entry, prefix, strlen(prefix)) == 0)
            visit(entry, strchr(entry, '=') + 1, context);
    }
}
