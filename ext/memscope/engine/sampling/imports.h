/*
 * The functions that loaded objects import, and putting others in their place.
 *
 * An object calls a function of another object through a slot that the dynamic linker fills in. Most slots are made
 * read-only after that (RELRO) and are made writable for the moment of a change. No lock but the dynamic linker's; no
 * allocation.
 */
#ifndef MEMSCOPE_IMPORTS_H
#define MEMSCOPE_IMPORTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* A function, by the name it is imported under, and what stands in for it. */
struct memscope_import {
    const char *name;
    void *original;
    void *replacement;
};

struct memscope_import_patches {
    size_t slots;   /* that hold a replacement */
    size_t objects; /* that have such slots */
    bool complete;  /* false while another thread is loading an object: what is not bound yet is left alone */
};

/*
 * Puts the replacements in place of the originals while wanted is true, or takes them back, in every loaded object but
 * the one that this code is in, the dynamic linker, and libgcc's unwinder. A slot that holds anything else than the
 * original is left alone (a function that another tool has put there; another allocator's malloc), unless the dynamic
 * linker has not filled it in yet. Wanted is looked at under the linker's lock: set it to false before restoring, and
 * no other thread replaces after. MEMSCOPE_DENIED when a slot could not be made writable; those before it are patched
 * then.
 */
enum memscope_status memscope_imports_replace(const struct memscope_import *imports, size_t count,
                                              const atomic_bool *wanted, struct memscope_import_patches *patches);
void memscope_imports_restore(const struct memscope_import *imports, size_t count);

#endif
