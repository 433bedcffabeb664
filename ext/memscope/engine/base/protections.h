/*
 * The malloc profile's safety measures, each by name, so that a test can disable one and show its effect. All are on in
 * the gem.
 */
#pragma once

#include <stdbool.h>

#ifdef MEMSCOPE_UNPROTECTED
#include <stdlib.h>
#include <string.h>

/* Returns false if `name` is the value of the environment variable MEMSCOPE_WITHOUT. */
static inline bool memscope_protects(const char *name) {
    const char *without = getenv("MEMSCOPE_WITHOUT");

    return !without || strcmp(without, name) != 0;
}
#define PROTECTS(name) memscope_protects(#name)
#else
#define PROTECTS(name) true
#endif
