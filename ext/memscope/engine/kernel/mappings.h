/*
 * The process's mappings as the kernel lists them: /proc/self/maps, and the two smaps fields that maps has not.
 */
#ifndef MEMSCOPE_MAPPINGS_H
#define MEMSCOPE_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scratch.h"
#include "base/status.h"

struct memscope_mapping {
    uintptr_t start;
    uintptr_t end;
    const char *name; /* path, "[heap]", "[anon:…]" or ""; in the name memory of the reading */
    uint64_t inode;
    uint64_t resident_bytes; /* smaps only, else 0 */
    bool readable, writable, executable, shared;
    bool noreserve;   /* smaps only: mapped with MAP_NORESERVE (and not MAP_DROPPABLE, which implies it) */
    bool of_jemalloc; /* told by ledger_jemalloc.c; false in a list that was just read */
};

struct memscope_mappings {
    struct memscope_mapping *list; /* ascending, disjoint */
    size_t count;
};

/* Where a list is read into. Both grow while it is read, so they must be two. Names live as long as theirs. */
struct memscope_mappings_memory {
    struct memscope_scratch *list;
    struct memscope_scratch *names;
};

/*
 * Parses the text of a maps or smaps file (smaps is maps with more lines). MEMSCOPE_MALFORMED when a line has not the
 * documented form or the last line has no end.
 */
enum memscope_status memscope_mappings_parse(const char *text, size_t length,
                                             const struct memscope_mappings_memory *memory,
                                             struct memscope_mappings *mappings);

/* Reads /proc/self/maps: some µs for each 50 mappings; no page tables are walked. No GVL, no allocation. */
enum memscope_status memscope_mappings_read(const struct memscope_mappings_memory *memory,
                                            struct memscope_mappings *mappings);

/* Reads /proc/self/smaps, which walks the page tables under the mmap lock: 3 to 30 ms for each resident GB. */
enum memscope_status memscope_mappings_read_smaps(const struct memscope_mappings_memory *memory,
                                                  struct memscope_mappings *mappings);

/* The mapping that holds address, or NULL. Logarithmic. */
const struct memscope_mapping *memscope_mappings_find(const struct memscope_mappings *mappings, uintptr_t address);

/* Without a file, and not one of the kernel's own ("[heap]", "[stack]", "[vdso]"); "[anon:…]" is a name given to it. */
bool memscope_mapping_is_anonymous(const struct memscope_mapping *mapping);

/* Anonymous, private, readable, writable and not executable: what an allocator gets from mmap. */
bool memscope_mapping_is_data(const struct memscope_mapping *mapping);

#endif
