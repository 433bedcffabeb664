/*
 * What memscope_allocator_settings (allocator.h) calls for each allocator. The settings are effective values if the
 * allocator reports them, else what the allocator's rules make of the environment.
 */
#ifndef MEMSCOPE_ALLOCATOR_SETTINGS_H
#define MEMSCOPE_ALLOCATOR_SETTINGS_H

#include "malloc/allocator.h"

/* Like memscope_allocator_settings: visits all settings and returns a caveat about all of them, or NULL. */
const char *memscope_glibc_settings(memscope_setting_visitor visit, void *context);

/*
 * How many freed chunks of up to 1040 bytes (64-bit) a glibc tcache holds at most, according to GLIBC_TUNABLES;
 * UINT64_MAX if it may hold any number, or larger chunks. mallopt cannot change this. Any context.
 */
uint64_t memscope_glibc_cache_slots(void);

/* The jemalloc side of memscope_allocator_settings, …_current_settings and …_confs. */
void memscope_jemalloc_settings(memscope_setting_visitor visit, void *context);
void memscope_jemalloc_current_settings(memscope_setting_visitor visit, void *context);
const char *memscope_jemalloc_confs(memscope_conf_visitor visit, void *context);

#endif
