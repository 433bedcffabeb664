/*
 * The parts of memscope_allocator_settings (allocator.h) for each allocator. The settings are effective values if the
 * allocator reports them, else derived from the environment by the allocator's rules.
 */
#pragma once

#include "malloc/allocator.h"

/* Visits all settings and returns a caveat about all of them, or NULL, as memscope_allocator_settings does. */
const char *memscope_glibc_settings(memscope_setting_visitor visit, void *context);

/*
 * The maximum number of freed chunks of up to 1040 bytes (64-bit) in a glibc tcache, according to GLIBC_TUNABLES, or
 * UINT64_MAX if it may hold any number, or larger chunks. mallopt cannot change this. Any context.
 */
uint64_t memscope_glibc_cache_slots(void);

/* The jemalloc side of memscope_allocator_settings, …_current_settings and …_confs. */
void memscope_jemalloc_settings(memscope_setting_visitor visit, void *context);
void memscope_jemalloc_current_settings(memscope_setting_visitor visit, void *context);
const char *memscope_jemalloc_confs(memscope_conf_visitor visit, void *context);
