/*
 * The functions that loaded objects import, and their replacement.
 *
 * An object calls a function of another object through a slot that the dynamic linker fills in. Most slots are
 * read-only afterwards (RELRO) and are made writable for the moment of a change. No lock but the dynamic linker's; no
 * allocation.
 */
#ifndef MEMSCOPE_IMPORTS_H
#define MEMSCOPE_IMPORTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* An imported function, by name, and its replacement. */
struct memscope_import {
    const char *name;
    void *original;
    void *replacement;
};

struct memscope_import_patches {
    size_t slots;   /* that hold a replacement */
    size_t objects; /* that have such slots */
    bool complete;  /* false while another thread is loading an object: unbound slots are skipped */
};

/*
 * While wanted is true, replaces the originals; otherwise restores them: in every loaded object but this code's own,
 * the dynamic linker, and libgcc's unwinder. Skips a slot that holds anything but the original (another tool's
 * function; another allocator's malloc), unless the dynamic linker has not filled it in yet. `wanted` is read under the
 * loader lock: clear it before restoring, so that no thread can re-patch afterwards. MEMSCOPE_DENIED when a slot could
 * not be made writable; earlier ones are patched then.
 */
enum memscope_status memscope_imports_replace(const struct memscope_import *imports, size_t count,
                                              const atomic_bool *wanted, struct memscope_import_patches *patches);
void memscope_imports_restore(const struct memscope_import *imports, size_t count);

#endif
