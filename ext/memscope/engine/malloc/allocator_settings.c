#include "malloc/allocator_settings.h"

#include "elf/shared_objects.h"

const char *memscope_allocator_settings(memscope_setting_visitor visit, void *context) {
    switch (memscope_allocator_current()->name) {
    case MEMSCOPE_ALLOCATOR_JEMALLOC:
        memscope_jemalloc_settings(visit, context);
        return NULL;
    case MEMSCOPE_ALLOCATOR_GLIBC:
        return memscope_glibc_settings(visit, context);
    case MEMSCOPE_ALLOCATOR_MIMALLOC:
        return "mimalloc does not report its options by name: these are the environment's";
    case MEMSCOPE_ALLOCATOR_TCMALLOC:
        return "tcmalloc does not report which values it took: these are the environment's";
    case MEMSCOPE_ALLOCATOR_MUSL:
        return "musl's malloc has no settings";
    case MEMSCOPE_ALLOCATOR_UNKNOWN:
        break;
    }
    return "the allocator is not known, so neither are its settings";
}

void memscope_allocator_current_settings(memscope_setting_visitor visit, void *context) {
    if (memscope_allocator_current()->name == MEMSCOPE_ALLOCATOR_JEMALLOC)
        memscope_jemalloc_current_settings(visit, context);
}

const char *memscope_allocator_confs(memscope_conf_visitor visit, void *context) {
    if (memscope_allocator_current()->name != MEMSCOPE_ALLOCATOR_JEMALLOC)
        return NULL;
    return memscope_jemalloc_confs(visit, context);
}

struct callers_visit {
    memscope_path_visitor visit;
    void *context;
};

static bool visit_if_caller(const struct memscope_shared_object *object, void *context) {
    const struct callers_visit *callers = context;

    if (memscope_shared_object_imports(object, "mallopt"))
        callers->visit(object->path, callers->context);
    return true;
}

void memscope_allocator_mallopt_callers(memscope_path_visitor visit, void *context) {
    struct callers_visit callers = {visit, context};

    memscope_each_shared_object(visit_if_caller, &callers);
}
