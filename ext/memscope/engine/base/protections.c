#include "base/protections.h"

#ifdef MEMSCOPE_UNPROTECTED

#include <stdlib.h>
#include <string.h>

bool memscope_protects(const char *name) {
    const char *without = getenv("MEMSCOPE_WITHOUT");

    return !without || strcmp(without, name) != 0;
}

#else

typedef int memscope_all_protected; /* ISO C forbids an empty file */

#endif
