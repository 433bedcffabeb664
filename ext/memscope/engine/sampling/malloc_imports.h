/*
 * The malloc functions that are replaced where loaded objects import them, and dlsym, whose replacement patches objects
 * that are loaded later. For import_sampler.c and import_counter.c, each of which defines its own replacements.
 */
#ifndef MEMSCOPE_MALLOC_IMPORTS_H
#define MEMSCOPE_MALLOC_IMPORTS_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "sampling/imports.h"

static void *counted_malloc(size_t size);
static void *counted_calloc(size_t count, size_t size);
static void *counted_realloc(void *block, size_t size);
static void *counted_reallocarray(void *block, size_t count, size_t size);
static void counted_free(void *block);
static int counted_posix_memalign(void **block, size_t alignment, size_t size);
static void *counted_aligned_alloc(size_t alignment, size_t size);
static void *counted_memalign(size_t alignment, size_t size);
static void *patching_dlsym(void *handle, const char *name);

enum { MALLOC, CALLOC, REALLOC, REALLOCARRAY, FREE, POSIX_MEMALIGN, ALIGNED_ALLOC, MEMALIGN, IMPORT_COUNT };

static struct memscope_import imports[IMPORT_COUNT] = {
    [MALLOC] = {"malloc", NULL, counted_malloc},
    [CALLOC] = {"calloc", NULL, counted_calloc},
    [REALLOC] = {"realloc", NULL, counted_realloc},
    [REALLOCARRAY] = {"reallocarray", NULL, counted_reallocarray},
    [FREE] = {"free", NULL, counted_free},
    [POSIX_MEMALIGN] = {"posix_memalign", NULL, counted_posix_memalign},
    [ALIGNED_ALLOC] = {"aligned_alloc", NULL, counted_aligned_alloc},
    [MEMALIGN] = {"memalign", NULL, counted_memalign},
};
static struct memscope_import late_hooks[] = {{"dlsym", NULL, patching_dlsym}};

#define ORIGINAL(index, type) ((type)imports[index].original)

static bool find_originals(void) {
    for (size_t index = 0; index < IMPORT_COUNT; index++)
        if (!imports[index].original && !(imports[index].original = dlsym(RTLD_DEFAULT, imports[index].name)))
            return false;
    return late_hooks[0].original || (late_hooks[0].original = dlsym(RTLD_DEFAULT, "dlsym"));
}

#endif
