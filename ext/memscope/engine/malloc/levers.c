#include "malloc/levers.h"

#include "malloc/allocator.h"
#include "malloc/jemalloc_control.h"

#define WEAK __attribute__((weak))

/* Declared as in malloc.h, mimalloc.h, gperftools/malloc_extension_c.h and google/tcmalloc's internal C interface. */
extern WEAK int malloc_trim(size_t pad);
extern WEAK void mi_collect(bool force);
extern WEAK int MallocExtension_GetNumericProperty(const char *property, size_t *value);
extern WEAK void MallocExtension_ReleaseFreeMemory(void);
/* Some versions return the bytes released, some nothing, so the value is ignored. */
extern WEAK void MallocExtension_Internal_ReleaseMemoryToSystem(size_t bytes);

static bool serves(enum memscope_allocator_name allocator) {
    return memscope_allocator_current()->name == allocator;
}

static bool has_jemalloc(void) {
    return serves(MEMSCOPE_ALLOCATOR_JEMALLOC);
}

static bool has_trim(void) {
    return serves(MEMSCOPE_ALLOCATOR_GLIBC) && malloc_trim;
}

static enum memscope_status trim(void) {
    malloc_trim(0);
    return MEMSCOPE_OK;
}

static bool has_collect(void) {
    if (serves(MEMSCOPE_ALLOCATOR_MIMALLOC))
        return mi_collect != NULL;
    return serves(MEMSCOPE_ALLOCATOR_TCMALLOC) &&
           (MallocExtension_ReleaseFreeMemory || MallocExtension_Internal_ReleaseMemoryToSystem);
}

static enum memscope_status collect(void) {
    if (serves(MEMSCOPE_ALLOCATOR_MIMALLOC))
        mi_collect(true);
    else if (MallocExtension_ReleaseFreeMemory)
        MallocExtension_ReleaseFreeMemory();
    else
        MallocExtension_Internal_ReleaseMemoryToSystem(SIZE_MAX);
    return MEMSCOPE_OK;
}

static const struct {
    const char *name, *missing; /* the reason's id */
    bool (*is_there)(void);
    enum memscope_status (*run)(void);
} levers[MEMSCOPE_LEVER_COUNT] = {
    [MEMSCOPE_LEVER_TCACHE] = {"tcache", "lever_of_jemalloc", has_jemalloc, memscope_jemalloc_flush_thread_cache},
    [MEMSCOPE_LEVER_DECAY] = {"decay", "lever_of_jemalloc", has_jemalloc, memscope_jemalloc_decay},
    [MEMSCOPE_LEVER_PURGE] = {"purge", "lever_of_jemalloc", has_jemalloc, memscope_jemalloc_purge},
    [MEMSCOPE_LEVER_TRIM] = {"trim", "lever_of_glibc", has_trim, trim},
    [MEMSCOPE_LEVER_COLLECT] = {"collect", "lever_of_page_heaps", has_collect, collect},
};

const char *memscope_lever_name(enum memscope_lever lever) {
    return levers[lever].name;
}

const char *memscope_lever_missing(enum memscope_lever lever) {
    if (lever >= MEMSCOPE_LEVER_COUNT)
        return "unsupported";
    return levers[lever].is_there() ? NULL : levers[lever].missing;
}

enum memscope_status memscope_lever_run(enum memscope_lever lever) {
    return memscope_lever_missing(lever) ? MEMSCOPE_UNSUPPORTED : levers[lever].run();
}

bool memscope_lever_collectable_bytes(uint64_t *bytes) {
    size_t value = 0;
    bool known = serves(MEMSCOPE_ALLOCATOR_TCMALLOC) && MallocExtension_GetNumericProperty &&
                 MallocExtension_GetNumericProperty("tcmalloc.pageheap_free_bytes", &value);

    *bytes = value;
    return known;
}
