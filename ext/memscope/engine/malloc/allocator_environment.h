/*
 * The environment variables that allocators read, and those with similar names, as they were when memscope was loaded.
 *
 * Allocators read them once, at the start of the process. ENV can change them later, and a process title may overwrite
 * /proc/self/environ, so they are copied at load.
 */
#pragma once

#include <stdbool.h>

void memscope_allocator_environment_capture(void);

/* Returns true in secure-execution mode (AT_SECURE), where allocators ignore these variables. */
bool memscope_allocator_environment_is_ignored(void);

/* The value of a captured variable, NULL if it is not set, or if the variables are ignored. Any context. */
const char *memscope_allocator_environment(const char *name);

typedef void (*memscope_environment_visitor)(const char *name, const char *value, void *context);

/*
 * Visits all captured variables, including ignored ones and those that no allocator reads. The visitor's name ends at
 * '='.
 */
void memscope_allocator_environment_given(memscope_environment_visitor visit, void *context);
