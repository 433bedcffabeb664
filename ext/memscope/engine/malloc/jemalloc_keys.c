#include "malloc/jemalloc_keys.h"

#include <errno.h>

#define WEAK __attribute__((weak))

/*
 * Declared as in jemalloc/jemalloc.h (5.0 to 5.3.1). The engine's tests compile these declarations against that header
 * if it is installed. Weak, so NULL if the process runs no such jemalloc.
 */
extern WEAK int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
extern WEAK int mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp);
extern WEAK int mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
extern WEAK size_t sallocx(const void *block, int flags);
extern WEAK const char *malloc_conf;

/* The same symbols of a jemalloc configured --with-jemalloc-prefix=je_. */
extern WEAK int je_mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
extern WEAK int je_mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp);
extern WEAK int je_mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
                                size_t newlen);
extern WEAK size_t je_sallocx(const void *block, int flags);
extern WEAK const char *je_malloc_conf;

struct memscope_jemalloc_binding memscope_jemalloc_binding(void) {
    if (mallctl && mallctlnametomib && mallctlbymib)
        return (struct memscope_jemalloc_binding){"", mallctl, mallctlnametomib, mallctlbymib, sallocx, &malloc_conf};
    if (je_mallctl && je_mallctlnametomib && je_mallctlbymib)
        return (struct memscope_jemalloc_binding){"je_",           je_mallctl, je_mallctlnametomib,
                                                  je_mallctlbymib, je_sallocx, &je_malloc_conf};
    return (struct memscope_jemalloc_binding){.prefix = ""};
}

struct memscope_mib memscope_jemalloc_mib(const struct memscope_jemalloc_binding *jemalloc, const char *key) {
    struct memscope_mib mib = {.length = MEMSCOPE_MIB_PARTS};

    if (jemalloc->name_to_mib(key, mib.parts, &mib.length) != 0)
        mib.length = 0;
    return mib;
}

bool memscope_jemalloc_read_mib(const struct memscope_jemalloc_binding *jemalloc, const struct memscope_mib *mib,
                                size_t size, uint64_t *value) {
    union {
        uint8_t one;
        uint32_t four;
        uint64_t eight;
    } raw;
    size_t length = size;

    if (mib->length == 0 || jemalloc->by_mib(mib->parts, mib->length, &raw, &length, NULL, 0) != 0 || length != size)
        return false;
    *value = size == sizeof raw.one ? raw.one : size == sizeof raw.four ? raw.four : raw.eight;
    return true;
}

enum memscope_status memscope_jemalloc_advance_epoch(const struct memscope_jemalloc_binding *jemalloc) {
    uint64_t epoch = 1; /* advanced by any value written */
    int error = jemalloc->by_name("epoch", NULL, NULL, &epoch, sizeof epoch);

    if (error == 0)
        return MEMSCOPE_OK;
    return error == EAGAIN ? MEMSCOPE_NO_MEMORY : memscope_status_of_errno(error);
}
