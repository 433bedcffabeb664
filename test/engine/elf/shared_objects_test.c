/* Exercises shared_objects.c against dlsym and dladdr, for every object of this program. Silent when right. */
#include "../expect.h"
#include "elf/shared_objects.h"

#include <dlfcn.h>
#include <string.h>

struct found {
    const void *address;
    size_t objects, exporting, importing, both, matching, ending;
};

static void count_ending(const char *name, const void *address, void *context) {
    struct found *found = context;

    if (strcmp(name, "malloc") == 0 && address == found->address)
        found->ending++;
}

static bool look(const struct memscope_shared_object *object, void *context) {
    struct found *found = context;
    const void *exported = memscope_shared_object_symbol(object, "malloc");

    found->objects++;
    found->exporting += exported != NULL;
    found->importing += memscope_shared_object_imports(object, "dladdr");
    found->both += exported && memscope_shared_object_imports(object, "malloc");
    found->matching += exported == found->address && memscope_shared_object_contains(object, (uintptr_t)exported);
    memscope_shared_object_symbols_ending(object, "alloc", count_ending, found);
    return memscope_shared_object_symbol(object, "no_such_function_anywhere") == NULL &&
           memscope_shared_object_symbol(object, "") == NULL && !memscope_shared_object_imports(object, "no_such_name");
}

static bool stop_at_once(const struct memscope_shared_object *object, void *context) {
    (void)object;
    ++*(size_t *)context;
    return false;
}

int main(void) {
    struct found found = {.address = dlsym(RTLD_DEFAULT, "malloc")};
    Dl_info info;
    uint64_t generation = memscope_shared_objects_generation();
    size_t visited = 0;

    memscope_each_shared_object(look, &found);
    memscope_each_shared_object(stop_at_once, &visited);
    EXPECT(found.objects >= 2);
    EXPECT(found.exporting >= 1);
    EXPECT(found.importing >= 1 && found.both == 0);
    EXPECT(found.matching == 1);
    EXPECT(found.ending == 1);
    EXPECT(visited == 1);
    EXPECT(dladdr(found.address, &info));
    if (dlopen("libz.so.1", RTLD_NOW))
        EXPECT(memscope_shared_objects_generation() != generation);
    return 0;
}
