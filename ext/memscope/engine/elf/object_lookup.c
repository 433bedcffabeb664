#include "elf/object_lookup.h"

#include <dlfcn.h>

/*
 * For headers before 2.35, and of other C libraries: the struct as glibc has defined it since then, up to the fields
 * read here, with more room than glibc fills.
 */
#ifndef DLFO_EH_SEGMENT_TYPE
struct dl_find_object {
    unsigned long long dlfo_flags;
    void *dlfo_map_start, *dlfo_map_end, *dlfo_link_map, *dlfo_eh_frame, *others[16];
};
extern int _dl_find_object(void *, struct dl_find_object *);
#endif

static __typeof__(_dl_find_object) *find_object;

/*
 * By name: even a weak reference needs glibc 2.35, if the extension was linked there. Before any call: malloc hooks and
 * signal handlers cannot wait for dlsym's lock.
 */
__attribute__((constructor)) static void memscope_object_lookup_learn(void) {
    find_object = (__typeof__(find_object))dlsym(RTLD_DEFAULT, "_dl_find_object");
}

bool memscope_object_lookup_possible(void) {
    return find_object != NULL;
}

bool memscope_object_at(uintptr_t address, struct memscope_loaded_object *object) {
    struct dl_find_object found;

    if (!find_object || find_object((void *)address, &found) != 0) /* NOLINT(performance-no-int-to-ptr) */
        return false;
    object->extent = (struct memscope_range){(uintptr_t)found.dlfo_map_start, (uintptr_t)found.dlfo_map_end};
    object->unwind_index = found.dlfo_eh_frame;
    return true;
}
