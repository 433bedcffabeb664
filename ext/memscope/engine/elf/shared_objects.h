/*
 * The shared objects that the dynamic linker has loaded, and their own exported symbols.
 *
 * Walks dl_iterate_phdr: takes the dynamic linker's lock, allocates nothing. Needs no GVL. On platforms other than
 * Linux the walk visits nothing.
 */
#pragma once

#include "base/range.h"

struct memscope_shared_object {
    const char *path;    /* as the linker names it, "" for the executable, valid only during the visit */
    uintptr_t load_bias; /* added to every p_vaddr */
    const void *headers; /* ElfW(Phdr)[header_count], owned by the linker */
    size_t header_count;
};

/* Returns true to continue the walk. Runs under the linker's lock: must not load or unload objects. */
typedef bool (*memscope_shared_object_visitor)(const struct memscope_shared_object *object, void *context);

void memscope_each_shared_object(memscope_shared_object_visitor visit, void *context);

/* Changes whenever an object has been loaded or unloaded. Returns 0 if the C library does not count loads. */
uint64_t memscope_shared_objects_generation(void);

/*
 * The address of the function or variable that this object itself defines and exports as `name`, or NULL. Reads the
 * object's mapped .dynsym through its hash tables, and never falls through to its dependencies as dlsym does.
 */
const void *memscope_shared_object_symbol(const struct memscope_shared_object *object, const char *name);

/*
 * Returns true if the object uses a function or variable of this name that it does not define. May miss a name whose
 * string the linker merged as the suffix of a longer one.
 */
bool memscope_shared_object_imports(const struct memscope_shared_object *object, const char *name);

/* A word of the object that the dynamic linker fills with the address of a function or variable. */
struct memscope_import_slot {
    const char *name;
    void **slot;
    bool call;      /* for calls only, while any other slot may be a function pointer in data */
    bool own;       /* the object defines the symbol itself, though another definition may take precedence */
    bool read_only; /* made read-only when the object was loaded (RELRO) */
};

typedef void (*memscope_import_slot_visitor)(const struct memscope_import_slot *slot, void *context);

/*
 * Visits all import slots of the object, on x86-64 and aarch64 only. Leaves out words in read-only segments
 * (DT_TEXTREL).
 */
void memscope_shared_object_import_slots(const struct memscope_shared_object *object,
                                         memscope_import_slot_visitor visit, void *context);

/*
 * From the start of the object's first segment to the end of its last. Other objects may be in gaps between segments.
 */
struct memscope_range memscope_shared_object_extent(const struct memscope_shared_object *object);

/*
 * The ElfW(Phdr) of the loaded segment that contains address and has all `flags` (PF_X, PF_W, PF_R, or 0 for any
 * segment), or NULL.
 */
const void *memscope_shared_object_segment(const struct memscope_shared_object *object, uintptr_t address,
                                           unsigned flags);

static inline bool memscope_shared_object_contains(const struct memscope_shared_object *object, uintptr_t address) {
    return memscope_shared_object_segment(object, address, 0) != NULL;
}

/* The run-time address of an address in the object's dynamic section, or NULL if no segment contains it. */
const void *memscope_shared_object_dynamic_address(const struct memscope_shared_object *object, uintptr_t value);

typedef void (*memscope_symbol_visitor)(const char *name, const void *address, void *context);

/*
 * Visits the functions and variables that the object itself exports under names that end in `suffix`. Searches the
 * string table first, so that an object without such a name costs microseconds.
 */
void memscope_shared_object_symbols_ending(const struct memscope_shared_object *object, const char *suffix,
                                           memscope_symbol_visitor visit, void *context);
