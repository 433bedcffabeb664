#include "malloc/levers.h"

#include "malloc/allocator.h"
#include "malloc/jemalloc_control.h"

#include <stddef.h>
#include <string.h>

static const char *const names[] = {
    [MEMSCOPE_LEVER_TCACHE] = "tcache", [MEMSCOPE_LEVER_DECAY] = "decay",     [MEMSCOPE_LEVER_PURGE] = "purge",
    [MEMSCOPE_LEVER_TRIM] = "trim",     [MEMSCOPE_LEVER_COLLECT] = "collect",
};

const char *memscope_lever_name(enum memscope_lever lever) {
    return names[lever];
}

#define WEAK __attribute__((weak))

/* Declared as in malloc.h, mimalloc.h, gperftools/malloc_extension_c.h and google/tcmalloc's internal C interface. */
extern WEAK int malloc_trim(size_t pad);
extern WEAK void mi_collect(bool force);
extern WEAK int MallocExtension_GetNumericProperty(const char *property, size_t *value);
extern WEAK void MallocExtension_ReleaseFreeMemory(void);
/* Some versions return the bytes released, some nothing, so the value is ignored. */
extern WEAK void MallocExtension_Internal_ReleaseMemoryToSystem(size_t bytes);

static bool has_collect(enum memscope_allocator_name allocator) {
    if (allocator == MEMSCOPE_ALLOCATOR_MIMALLOC)
        return mi_collect != NULL;
    return allocator == MEMSCOPE_ALLOCATOR_TCMALLOC &&
           (MallocExtension_ReleaseFreeMemory || MallocExtension_Internal_ReleaseMemoryToSystem);
}

const char *memscope_lever_missing(enum memscope_lever lever) {
    enum memscope_allocator_name allocator = memscope_allocator_current()->name;

    switch (lever) {
    case MEMSCOPE_LEVER_TCACHE:
    case MEMSCOPE_LEVER_DECAY:
    case MEMSCOPE_LEVER_PURGE:
        return allocator == MEMSCOPE_ALLOCATOR_JEMALLOC ? NULL : "lever_of_jemalloc";
    case MEMSCOPE_LEVER_TRIM:
        return allocator == MEMSCOPE_ALLOCATOR_GLIBC && malloc_trim ? NULL : "lever_of_glibc";
    case MEMSCOPE_LEVER_COLLECT:
        return has_collect(allocator) ? NULL : "lever_of_page_heaps";
    case MEMSCOPE_LEVER_COUNT:
        break;
    }
    return "unsupported";
}

static void collect(void) {
    if (memscope_allocator_current()->name == MEMSCOPE_ALLOCATOR_MIMALLOC)
        mi_collect(true);
    else if (MallocExtension_ReleaseFreeMemory)
        MallocExtension_ReleaseFreeMemory();
    else
        MallocExtension_Internal_ReleaseMemoryToSystem(SIZE_MAX);
}

enum memscope_status memscope_lever_run(enum memscope_lever lever) {
    if (memscope_lever_missing(lever))
        return MEMSCOPE_UNSUPPORTED;
    switch (lever) {
    case MEMSCOPE_LEVER_TCACHE:
        return memscope_jemalloc_flush_thread_cache();
    case MEMSCOPE_LEVER_DECAY:
        return memscope_jemalloc_decay();
    case MEMSCOPE_LEVER_PURGE:
        return memscope_jemalloc_purge();
    case MEMSCOPE_LEVER_TRIM:
        malloc_trim(0);
        return MEMSCOPE_OK;
    case MEMSCOPE_LEVER_COLLECT:
        collect();
        return MEMSCOPE_OK;
    case MEMSCOPE_LEVER_COUNT:
        break;
    }
    return MEMSCOPE_UNSUPPORTED;
}

bool memscope_lever_collectable_bytes(uint64_t *bytes) {
    size_t value = 0;
    bool known = memscope_allocator_current()->name == MEMSCOPE_ALLOCATOR_TCMALLOC &&
                 MallocExtension_GetNumericProperty &&
                 MallocExtension_GetNumericProperty("tcmalloc.pageheap_free_bytes", &value);

    *bytes = value;
    return known;
}
