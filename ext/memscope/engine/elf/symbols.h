/*
 * Finds the function and the loaded object that contain an address.
 *
 * Covers the functions that an object exports (its .dynsym, in memory), and all others if its file, or a separate debug
 * file of the same build-id, has a .symtab. Files are read, not mapped, since a mapping of a file that is truncated
 * would kill the process. A file counts only if it is the loaded object's, by build-id or, without one, by equal
 * program headers. For 64-bit objects on x86-64 and aarch64 Linux, elsewhere MEMSCOPE_UNSUPPORTED.
 */
#pragma once

#include "base/own_memory.h"
#include "base/scratch.h"
#include "base/status.h"

#define MEMSCOPE_DEBUG_DIRECTORY "/usr/lib/debug"

/* The pointers are valid until the symbols are closed. */
struct memscope_symbol {
    const char *name;   /* NULL if no known function covers the address */
    uintptr_t offset;   /* distance of the address from the function's start, or without a name, from the load bias */
    const char *object; /* path, as the linker names it, or "linux-vdso.so.1" or the like for the vDSO */
    bool complete;      /* a .symtab was read, so that an address without a name is between functions */
    /*
     * The status of reading the object's file, MEMSCOPE_NOT_FOUND also if another file now has that name, and for the
     * vDSO, which has no file. Exported functions always have names.
     */
    enum memscope_status file;
};

struct memscope_symbol_object;

/* For one thread only, and not for a forked child. */
struct memscope_symbols {
    struct memscope_scratch scratch;
    struct memscope_own_memory memory;
    struct memscope_symbol_object *objects; /* in the linker's order */
    size_t count;
    const char *debug_directory; /* MEMSCOPE_DEBUG_DIRECTORY, unless the caller changes it before the first find */
};

/*
 * Lists the objects that are loaded now. Objects loaded later are not found, and objects unloaded later keep the names
 * that were looked up. Holds the dynamic linker's lock, as memscope_images_read does, and also requires that nothing
 * forks until it returns. Takes 20 to 100 µs, and memory from scratch only. On failure the symbols are closed.
 */
enum memscope_status memscope_symbols_open(struct memscope_symbols *symbols);

/* Idempotent. */
void memscope_symbols_close(struct memscope_symbols *symbols);

/*
 * For an address outside all loaded objects, returns MEMSCOPE_NOT_FOUND and sets *found to zeros. The first lookup in
 * an object reads its symbols, some ms per 10,000 symbols, and each later lookup takes a fraction of a microsecond. No
 * malloc, no lock, no GVL needed. For a return address pass address - 1, since the return address is past the call, and
 * may be in the next function.
 */
enum memscope_status memscope_symbols_find(struct memscope_symbols *symbols, uintptr_t address,
                                           struct memscope_symbol *found);
