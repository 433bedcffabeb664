/*
 * The functions that loaded objects import, and their replacement.
 *
 * An object calls a function of another object through a slot that the dynamic linker fills in. Most slots are
 * read-only afterwards (RELRO) and are made writable for the moment of a change. Takes only the dynamic linker's lock,
 * and allocates nothing.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct memscope_import {
    const char *name;
    void *original;
    void *replacement;
};

struct memscope_import_patches {
    size_t slots;   /* slots that hold a replacement */
    size_t objects; /* objects that have such slots */
    bool complete;  /* false if an object was skipped because another thread was still loading it */
    bool taken;     /* another copy of this library has replaced the same imports already */
};

/*
 * memscope_imports_replace stores the replacements while *wanted is true, and memscope_imports_restore stores the
 * originals. Both work in every loaded object except the dynamic linker, libgcc's unwinder, this library and other
 * copies of it (Ruby::Box loads one for each box).
 *
 * Slots that hold any other function (of another tool or another allocator) are left alone. If an object calls any of
 * the imports through such a slot, all of its slots are left alone. Slots that the dynamic linker has not filled in yet
 * are replaced too, unless some loaded object has its own definition of imports[0] (the C library's does not count).
 *
 * *wanted is read under the dynamic linker's lock. Clear it before restoring, so that no thread can patch again
 * afterwards. Returns MEMSCOPE_DENIED if a slot could not be made writable. Other slots may be patched already then.
 */
enum memscope_status memscope_imports_replace(const struct memscope_import *imports, size_t count,
                                              const atomic_bool *wanted, struct memscope_import_patches *patches);
void memscope_imports_restore(const struct memscope_import *imports, size_t count);
