/*
 * The environment variables that allocators read, as they were when memscope was loaded.
 *
 * Allocators read them once, at the start of the process. ENV can change later, and a process title may overwrite
 * /proc/self/environ, so they are copied at load.
 */
#ifndef MEMSCOPE_ALLOCATOR_ENVIRONMENT_H
#define MEMSCOPE_ALLOCATOR_ENVIRONMENT_H

/* Copies them. Nothing is kept of a program that runs set-user-ID: allocators do not listen there either. */
void memscope_allocator_environment_capture(void);

/* The value of a captured variable or NULL. Any context. */
const char *memscope_allocator_environment(const char *name);

typedef void (*memscope_environment_visitor)(const char *name, const char *value, void *context);

/* Visits the captured variables whose names begin with prefix. The name is the whole one and ends at '='. */
void memscope_allocator_environment_each(const char *prefix, memscope_environment_visitor visit, void *context);

#endif
