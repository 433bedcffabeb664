#include "sampling/imports.h"

#include "elf/object_lookup.h"
#include "elf/shared_objects.h"
#include "sampling/native_frames.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A walk over all objects, and its state for the current object. */
struct change {
    const struct memscope_import *imports;
    size_t count;
    const atomic_bool *wanted; /* NULL to restore */
    bool others;               /* another object defines the first of these functions for its own use */
    const struct memscope_shared_object *object;
    bool mixed; /* the object calls one of these functions through a slot bound to another function */
    bool relocated;
    bool complete;
    size_t slots, objects;
    uintptr_t foreign; /* the first function in a mixed object that is neither the original nor the replacement */
    bool taken;
    enum memscope_status status;
};

static const struct memscope_import *import_of(const struct change *change, const char *name) {
    for (size_t index = 0; index < change->count; index++)
        if (strcmp(change->imports[index].name, name) == 0)
            return &change->imports[index];
    return NULL;
}

/* Until the first call, a slot that the linker binds lazily points back into its own object. */
static bool is_unbound(const struct change *change, const struct memscope_import_slot *slot) {
    return slot->call && !slot->own &&
           memscope_shared_object_contains(change->object, (uintptr_t)__atomic_load_n(slot->slot, __ATOMIC_RELAXED));
}

static bool store(const struct memscope_import_slot *slot, void *function) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)((uintptr_t)slot->slot & -page);

    if (slot->read_only && mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
        return false;
    __atomic_store_n(slot->slot, function, __ATOMIC_RELEASE);
    if (slot->read_only)
        mprotect(start, page, PROT_READ);
    return true;
}

/*
 * The linker lists an object before it has relocated it, under a lock that cannot be taken here (glibc 2.36
 * elf/dl-open.c, dl_open_worker_begin). If a page were made read-only during that time, the linker would fault.
 * memscope_object_at finds an object only once the linker has finished with it (in the same function, as seen in 2.36,
 * 2.41 and 2.43). Before 2.35, a call slot shows whether its object is relocated: until then, it holds the file's
 * content, an address without the load bias.
 */
static bool is_relocated(const struct change *change, const struct memscope_import_slot *slot, uintptr_t value) {
    uintptr_t bias = change->object->load_bias;
    struct memscope_loaded_object found;

    if (memscope_object_lookup_possible())
        return memscope_object_at((uintptr_t)slot->slot, &found);
    if (!slot->call)
        return true;
    return value == 0 || bias == 0 || value >= bias || !memscope_shared_object_contains(change->object, bias + value);
}

static void look_at_slot(const struct memscope_import_slot *slot, void *context) {
    struct change *change = context;
    const struct memscope_import *import = import_of(change, slot->name);
    void *function = __atomic_load_n(slot->slot, __ATOMIC_RELAXED);

    if (change->relocated && !is_relocated(change, slot, (uintptr_t)function))
        change->relocated = false;
    if (import && slot->call && function != import->original && function != import->replacement &&
        !is_unbound(change, slot)) {
        change->mixed = true;
        change->foreign = change->foreign == 0 ? (uintptr_t)function : change->foreign;
    }
}

static void change_slot(const struct memscope_import_slot *slot, void *context) {
    struct change *change = context;
    const struct memscope_import *import = import_of(change, slot->name);
    void *from, *to, *function;

    if (!import)
        return;
    from = change->wanted ? import->original : import->replacement;
    to = change->wanted ? import->replacement : import->original;
    function = __atomic_load_n(slot->slot, __ATOMIC_RELAXED);
    if (function == to) {
        change->slots++;
    } else if (function == from || (change->wanted && !change->others && is_unbound(change, slot))) {
        if (store(slot, to))
            change->slots++;
        else
            change->status = MEMSCOPE_DENIED;
    }
}

static bool is_copy(const struct memscope_shared_object *object) {
    return memscope_shared_object_symbol(object, "Init_memscope") != NULL;
}

/*
 * Excludes the linker (whose own malloc serves nobody else), this library and other copies of it (whose calls are
 * memscope's), and the unwinder (which runs inside malloc).
 */
static bool is_excluded(const struct memscope_shared_object *object) {
    return memscope_shared_object_symbol(object, "_r_debug") || memscope_shared_object_symbol(object, "_rtld_global") ||
           memscope_native_frames_unwinder(object) ||
           memscope_shared_object_contains(object, (uintptr_t)(void *)is_excluded) || is_copy(object);
}

static bool change_object(const struct memscope_shared_object *object, void *context) {
    struct change *change = context;
    size_t before = change->slots;

    if (change->wanted && !atomic_load(change->wanted))
        return false;
    if (is_excluded(object))
        return true;
    change->object = object;
    change->mixed = false;
    change->relocated = true;
    if (change->wanted)
        memscope_shared_object_import_slots(object, look_at_slot, change);
    if (!change->relocated)
        change->complete = false;
    else if (!change->mixed)
        memscope_shared_object_import_slots(object, change_slot, change);
    change->objects += change->slots > before;
    return change->status == MEMSCOPE_OK;
}

static bool find_copy(const struct memscope_shared_object *object, void *context) {
    struct change *change = context;

    change->taken = is_copy(object) && memscope_shared_object_contains(object, change->foreign);
    return !change->taken;
}

static bool find_others(const struct memscope_shared_object *object, void *context) {
    struct change *change = context;
    const void *function = memscope_shared_object_symbol(object, change->imports[0].name);

    /* The C library's own malloc does not count: an interposed allocator has replaced it for all objects. */
    if (function && function != change->imports[0].original && !is_excluded(object) &&
        !memscope_shared_object_symbol(object, "__libc_start_main"))
        change->others = true;
    return !change->others;
}

enum memscope_status memscope_imports_replace(const struct memscope_import *imports, size_t count,
                                              const atomic_bool *wanted, struct memscope_import_patches *patches) {
    struct change change = {.imports = imports, .count = count, .wanted = wanted, .complete = true};

    memscope_each_shared_object(find_others, &change);
    memscope_each_shared_object(change_object, &change);
    if (change.foreign != 0)
        memscope_each_shared_object(find_copy, &change);
    *patches = (struct memscope_import_patches){change.slots, change.objects, change.complete, change.taken};
    return change.status;
}

void memscope_imports_restore(const struct memscope_import *imports, size_t count) {
    struct change change = {.imports = imports, .count = count};

    memscope_each_shared_object(change_object, &change);
}
