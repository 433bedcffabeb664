/*
 * The settings of each allocator, behind memscope_allocator_settings of allocator.h: effective values where the
 * allocator reports them, else what its rules make of the environment.
 */
#ifndef MEMSCOPE_ALLOCATOR_SETTINGS_H
#define MEMSCOPE_ALLOCATOR_SETTINGS_H

#include "malloc/allocator.h"

/* Visits all settings and returns a phrase that applies to all, or NULL; as memscope_allocator_settings. */
const char *memscope_glibc_settings(memscope_setting_visitor visit, void *context);

/* For jemalloc what memscope_allocator_settings, current_settings and confs are for the current allocator. */
void memscope_jemalloc_settings(memscope_setting_visitor visit, void *context);
void memscope_jemalloc_current_settings(memscope_setting_visitor visit, void *context);
const char *memscope_jemalloc_confs(memscope_conf_visitor visit, void *context);

#endif
