/*
 * The functions of one object, sorted by address.
 */
#pragma once

#include "base/scratch.h"

struct memscope_function {
    uintptr_t start;
    uintptr_t end; /* if unsized, the next start, or the end of the section or segment if earlier */
    const char *name;
    bool sized;
    bool exported; /* global or weak, not local */
    bool strong;   /* not weak */
};

struct memscope_functions {
    struct memscope_function *list;
    size_t count;
};

/*
 * Sorts the list, keeps one name for each start, and ends unsized functions where the next one starts. Of several
 * names, an exported one wins, then one without a leading underscore, which C reserves (malloc, not __libc_malloc, and
 * write, though in glibc it is a weak alias of __write), then a strong one, the shorter one, the alphabetically first
 * one. Sorting gives back the memory that it takes from scratch. Returns false, with an empty list, if scratch is too
 * small.
 */
bool memscope_functions_sort(struct memscope_functions *functions, struct memscope_scratch *scratch);

/*
 * The innermost function that covers address, or NULL. Looks no further than the 16 functions that start nearest before
 * address.
 */
const struct memscope_function *memscope_functions_find(const struct memscope_functions *functions, uintptr_t address);
