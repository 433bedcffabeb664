#include "malloc/allocator.h"

#include "elf/shared_objects.h"
#include "malloc/jemalloc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* By functions that only one kind of allocator exports: <prefix>mallctl, mi_version or tc_version. */
struct candidates {
    const struct memscope_shared_object *object; /* being visited */
    size_t count;
    struct memscope_other_allocator list[2 * MEMSCOPE_OTHER_ALLOCATORS];
};

static void add(struct candidates *candidates, enum memscope_allocator_name name, const void *function,
                const char *prefix, size_t prefix_length) {
    struct memscope_other_allocator *candidate = &candidates->list[candidates->count];

    if (candidates->count == sizeof candidates->list / sizeof candidates->list[0])
        return;
    candidates->count++;
    *candidate =
        (struct memscope_other_allocator){.name = name, .function = function, .allocated_bytes = MEMSCOPE_UNKNOWN};
    memcpy(candidate->prefix, prefix, prefix_length);
    snprintf(candidate->path, sizeof candidate->path, "%s", candidates->object->path);
}

/* A jemalloc exports three mallctl functions under one prefix. An object that lacks one of them is not a candidate. */
static void add_jemalloc(const char *name, const void *address, void *context) {
    struct candidates *candidates = context;
    size_t prefix_length = strlen(name) - strlen("mallctl");
    char sibling[128];

    if (prefix_length >= sizeof candidates->list[0].prefix)
        return;
    snprintf(sibling, sizeof sibling, "%sbymib", name);
    if (!memscope_shared_object_symbol(candidates->object, sibling))
        return;
    snprintf(sibling, sizeof sibling, "%snametomib", name);
    if (memscope_shared_object_symbol(candidates->object, sibling))
        add(candidates, MEMSCOPE_ALLOCATOR_JEMALLOC, address, name, prefix_length);
}

static bool collect(const struct memscope_shared_object *object, void *context) {
    struct candidates *candidates = context;
    const void *function;

    candidates->object = object;
    memscope_shared_object_symbols_ending(object, "mallctl", add_jemalloc, candidates);
    if ((function = memscope_shared_object_symbol(object, "mi_version")))
        add(candidates, MEMSCOPE_ALLOCATOR_MIMALLOC, function, "", 0);
    if ((function = memscope_shared_object_symbol(object, "tc_version")))
        add(candidates, MEMSCOPE_ALLOCATOR_TCMALLOC, function, "", 0);
    return true;
}

/*
 * Returns false if malloc goes through this jemalloc after all, which is then the serving allocator under a second
 * name.
 */
static bool describe_jemalloc(memscope_mallctl mallctl, struct memscope_other_allocator *other) {
    const char *version = NULL;
    size_t requested, length = sizeof version;
    uint64_t risen;

    if (memscope_jemalloc_serves_malloc(mallctl, &requested, &risen))
        return false;
    if (mallctl("version", &version, &length, NULL, 0) == 0 && version)
        snprintf(other->version, sizeof other->version, "%s", version);
    return true;
}

/*
 * Keeps the object loaded during the calls (another thread could unload it) with a dlopen handle, not with the linker's
 * lock, under which no allocator may be called. Calls nothing if an object was loaded or unloaded since the walk, since
 * the function may then be another object's. Calling an idle jemalloc makes it set up its ctl tables. jemalloc's own
 * constructor initialised it at load.
 */
static bool describe(struct memscope_other_allocator *other, uint64_t generation) {
    enum memscope_allocator_name serving = memscope_allocator_current()->name;
    void *handle = dlopen(other->path[0] ? other->path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    bool is_other = handle != NULL && memscope_shared_objects_generation() == generation &&
                    (other->name == MEMSCOPE_ALLOCATOR_JEMALLOC || other->name != serving);

    if (is_other && other->name == MEMSCOPE_ALLOCATOR_JEMALLOC)
        is_other = describe_jemalloc((memscope_mallctl)(uintptr_t)other->function, other);
    else if (is_other && other->name == MEMSCOPE_ALLOCATOR_MIMALLOC)
        memscope_allocator_mimalloc_version(((int (*)(void))(uintptr_t)other->function)(), other->version,
                                            sizeof other->version);
    else if (is_other)
        memscope_allocator_tcmalloc_version((memscope_tc_version)(uintptr_t)other->function, other->version,
                                            sizeof other->version);
    if (is_other && other->path[0] == '\0') {
        ssize_t length = readlink("/proc/self/exe", other->path, sizeof other->path - 1);

        other->path[length > 0 ? length : 0] = '\0';
        other->in_program = true;
    }
    if (handle)
        dlclose(handle);
    return is_other;
}

static bool read_size(memscope_mallctl mallctl, const char *key, uint64_t *value) {
    size_t size = 0, length = sizeof size;
    bool read = mallctl(key, &size, &length, NULL, 0) == 0 && length == sizeof size;

    *value = size;
    return read;
}

/* jemalloc counts its own blocks (such as each thread's cache) and the blocks in thread caches as allocated. */
static bool read_allocated(memscope_mallctl mallctl, uint64_t *bytes) {
    uint64_t epoch = 1, internal = 0, cached = 0, stashed = 0;

    if (mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0 || !read_size(mallctl, "stats.allocated", bytes) ||
        !read_size(mallctl, "stats.arenas.4096.internal", &internal))
        return false;
    read_size(mallctl, "stats.arenas.4096.tcache_bytes", &cached);
    read_size(mallctl, "stats.arenas.4096.tcache_stashed_bytes", &stashed); /* since 5.3.0 */
    internal += cached + stashed;
    *bytes = internal < *bytes ? *bytes - internal : 0;
    return true;
}

/* Keeps the object loaded, and checks the generation, as describe does. */
static void read_figures(struct memscope_other_allocator *other, uint64_t generation) {
    void *handle = dlopen(other->in_program ? NULL : other->path, RTLD_LAZY | RTLD_NOLOAD);

    if (handle == NULL || memscope_shared_objects_generation() != generation ||
        !read_allocated((memscope_mallctl)(uintptr_t)other->function, &other->allocated_bytes))
        other->allocated_bytes = MEMSCOPE_UNKNOWN;
    if (handle)
        dlclose(handle);
}

size_t memscope_allocator_others(const struct memscope_other_allocator **others) {
    static struct candidates candidates; /* the others among them are kept, first in the list */
    static uint64_t generation;
    static size_t count;
    uint64_t now = memscope_shared_objects_generation();

    *others = candidates.list;
    if (generation == 0 || now != generation) {
        generation = now;
        candidates.count = count = 0;
        memscope_each_shared_object(collect, &candidates);
        for (size_t index = 0; index < candidates.count && count < MEMSCOPE_OTHER_ALLOCATORS; index++)
            if (describe(&candidates.list[index], generation))
                candidates.list[count++] = candidates.list[index];
    }
    for (size_t index = 0; index < count; index++)
        if (candidates.list[index].name == MEMSCOPE_ALLOCATOR_JEMALLOC)
            read_figures(&candidates.list[index], generation);
    return count;
}

const char *memscope_other_allocator_reason(const struct memscope_other_allocator *other) {
    if (other->prefix[0] != '\0')
        return "a private copy under its own prefix: malloc does not go through it";
    if (other->allocated_bytes == MEMSCOPE_UNKNOWN)
        return "malloc does not go through it; whether a library allocates from it is unknown";
    return other->allocated_bytes > 0 ? "malloc does not go through it, but a library allocates from it"
                                      : "loaded but serves nothing: malloc does not go through it";
}
